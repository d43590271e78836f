"""Pre-training on programs that nobody measured, with a constructive proposer as the teacher.

Batch number n of a seed depends on nothing but both, and nothing else is drawn, so that a run that was cut
off and continued ends as one that was not.
"""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2LMHeadModel

from host.errors import TlmError
from host.space.protocol import Proposer
from host.tlm.dataset import Dataset, Example
from host.tlm.model import CARD, Card, Size, new_model, save_model, write_whole
from host.tlm.vocabulary import PAD, Vocabulary, quality_token

SENTENCES, STATE = "sentences.jsonl", "training.pt"
# Every so many-th example is withheld to see what is learned about tasks never seen.
_WITHHELD_EACH = 20
_IGNORED = -100
_LARGEST_GRADIENT = 1.0


@dataclass(frozen=True)
class PretrainOptions:
    """How to pre-train.

    Attributes:
        out: folder of data, state and checkpoint.
        steps: batches in all.
        examples: tasks to train on.
        seed: of data, weights and batches.
        resume: go on with what is in the folder.
        batch: sentences of one step.
        learning_rate: largest; it rises over `warm_up` steps and falls to zero as a cosine.
        warm_up: steps.
        save_every: steps between two states on disk.
        size: of the network.
    """

    out: Path
    steps: int = 20000
    examples: int = 20000
    seed: int = 0
    resume: bool = False
    batch: int = 32
    learning_rate: float = 1e-3
    warm_up: int = 100
    save_every: int = 200
    size: Size = field(default_factory=Size)


@dataclass(frozen=True)
class Progress:
    """How far it is.

    Attributes:
        stage: "sentences" or "training".
        done, total: examples or steps.
        loss: mean over the decisions' tokens of the last steps, natural logarithm.
        withheld_loss: the same for withheld tasks, NaN until it is known.
    """

    stage: str
    done: int
    total: int
    loss: float = math.nan
    withheld_loss: float = math.nan


def pretrain(options: PretrainOptions, teacher: Proposer, tell: Callable[[Progress], None]) -> Card:
    """Makes what is missing of the data, trains, and writes a checkpoint into the folder.

    Raises:
        TlmError: the folder holds another training, or one that was not asked to go on.
    """
    vocabulary = Vocabulary()
    if not options.resume and any((options.out / name).exists() for name in (STATE, SENTENCES, CARD)):
        raise TlmError(f"{options.out}: there is a training already; add --resume or choose another folder")
    data = Dataset(options.out / SENTENCES, options.seed, vocabulary)
    for example in data.grow(options.examples, teacher):
        tell(Progress("sentences", example.index + 1, options.examples))
    trained, withheld = split(data.examples[: options.examples])
    if not trained or not withheld:
        raise TlmError(f"{options.examples} examples are too few to train on: at least {_WITHHELD_EACH + 1}")
    trainer = Trainer(options, vocabulary)
    state = options.out / STATE
    if state.exists():
        trainer.restore(state)
    while trainer.step < options.steps:
        trainer.train(trained)
        if trainer.step % options.save_every == 0 or trainer.step == options.steps:
            trainer.withheld_loss = trainer.loss_of(withheld)
            write_whole(state, trainer.state())
        tell(Progress("training", trainer.step, options.steps, trainer.recent_loss, trainer.withheld_loss))
    return save_model(
        trainer.model, options.out, vocabulary, options.size, "", _history(options, trainer, data)
    )


def split(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Examples to train on, and those withheld; without those that were left out."""
    used = [example for example in examples if example.programs]
    return (
        [example for example in used if example.index % _WITHHELD_EACH],
        [example for example in used if not example.index % _WITHHELD_EACH],
    )


def _history(options: PretrainOptions, trainer: Trainer, data: Dataset) -> dict[str, Any]:
    """What the card says of the training."""
    examples = data.examples[: options.examples]
    return {
        "seed": options.seed,
        "steps": trainer.step,
        "batch": options.batch,
        "learning_rate": options.learning_rate,
        "tasks": sum(bool(example.programs) for example in examples),
        "held_out": sum(example.left_out == "held out" for example in examples),
        "programs": sum(len(example.programs) for example in examples),
        "loss": round(trainer.recent_loss, 4),
        "withheld_loss": round(trainer.withheld_loss, 4),
    }


class Trainer:
    """A network with its optimiser.

    Args:
        options: how to train.
        vocabulary: of the sentences.

    Attributes:
        step: batches trained on.
        recent_loss: running mean of the loss.
        withheld_loss: of the last state on disk.
    """

    def __init__(self, options: PretrainOptions, vocabulary: Vocabulary) -> None:
        self._options = options
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._padding = vocabulary.number(PAD)
        self._qualities = [vocabulary.number(quality_token(quality)) for quality in range(4)]
        self.model: GPT2LMHeadModel = new_model(vocabulary, options.size, options.seed).to(self._device)
        self._optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=options.learning_rate, weight_decay=0.01
        )
        self.step = 0
        self.recent_loss = math.nan
        self.withheld_loss = math.nan

    def train(self, examples: Sequence[Example]) -> None:
        """One step."""
        generator = random.Random(f"{self._options.seed}/batch/{self.step}")
        chosen = [
            (example, _program(example, generator))
            for example in generator.choices(examples, k=self._options.batch)
        ]
        for group in self._optimiser.param_groups:
            group["lr"] = self._options.learning_rate * self._rate()
        self.model.train()
        loss = self._loss(chosen)
        self._optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), _LARGEST_GRADIENT)
        self._optimiser.step()
        value = float(loss.detach())
        self.recent_loss = value if math.isnan(self.recent_loss) else 0.98 * self.recent_loss + 0.02 * value
        self.step += 1

    def loss_of(self, examples: Sequence[Example]) -> float:
        """Mean loss over the best program of each example."""
        self.model.eval()
        total = 0.0
        with torch.inference_mode():
            for start in range(0, len(examples), self._options.batch):
                batch = [(example, 0) for example in examples[start : start + self._options.batch]]
                total += float(self._loss(batch)) * len(batch)
        return total / len(examples)

    def _rate(self) -> float:
        """Share of the largest learning rate at this step."""
        if self.step < self._options.warm_up:
            return (self.step + 1) / self._options.warm_up
        rest = max(1, self._options.steps - self._options.warm_up)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (self.step - self._options.warm_up) / rest)))

    def _loss(self, chosen: Sequence[tuple[Example, int]]) -> torch.Tensor:
        """Mean over the tokens of the decisions; what is known before them is not learned."""
        rows, labels = [], []
        for example, number in chosen:
            known = [*example.prompt, self._qualities[example.qualities[number]]]
            decided = list(example.programs[number][0])
            rows.append(known + decided)
            labels.append([_IGNORED] * len(known) + decided)
        longest = max(map(len, rows))
        tokens = [row + [self._padding] * (longest - len(row)) for row in rows]
        targets = [row + [_IGNORED] * (longest - len(row)) for row in labels]
        logits = self.model(torch.tensor(tokens, device=self._device)).logits[:, :-1]
        wanted = torch.tensor(targets, device=self._device)[:, 1:]
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), wanted.reshape(-1), ignore_index=_IGNORED
        )

    def state(self) -> bytes:
        """Everything that the training goes on from."""
        buffer = io.BytesIO()
        torch.save(
            {
                "key": self._key(),
                "step": self.step,
                "recent_loss": self.recent_loss,
                "withheld_loss": self.withheld_loss,
                "model": self.model.state_dict(),
                "optimiser": self._optimiser.state_dict(),
            },
            buffer,
        )
        return buffer.getvalue()

    def restore(self, path: Path) -> None:
        """Goes on from a state on disk.

        Raises:
            TlmError: it is damaged, or of a training with other options.
        """
        try:
            state = torch.load(path, map_location=self._device, weights_only=True)
            key = state["key"]
            if key == self._key():
                self.model.load_state_dict(state["model"])
                self._optimiser.load_state_dict(state["optimiser"])
                self.step = int(state["step"])
                self.recent_loss, self.withheld_loss = state["recent_loss"], state["withheld_loss"]
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise TlmError(
                f"{path} is damaged ({type(error).__name__}: {first}); remove it to train from the start"
            ) from error
        if key != self._key():
            raise TlmError(f"{path}: a training with {key}, not {self._key()}; choose another folder")

    def _key(self) -> dict[str, Any]:
        """What a training has to have in common with the one that it goes on from."""
        options = self._options
        return {
            "seed": options.seed,
            "batch": options.batch,
            "learning_rate": options.learning_rate,
            "size": asdict(options.size),
        }


def _program(example: Example, generator: random.Random) -> int:
    """A program to learn, the better the likelier."""
    weights = [slower**-4 for _, slower in example.programs]
    return generator.choices(range(len(weights)), weights)[0]
