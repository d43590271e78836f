"""Pre-training on programs that were not measured, with a constructive proposer as the teacher.

A batch depends only on the seed and its own number, and nothing else is random. A run that was interrupted
and continued therefore ends with the same weights as an uninterrupted one, whoever was: the command, or the
host that trains. What was trained comes back as a file.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from host.errors import TlmError
from host.execution import HostLost, open_engine
from host.options.engine import LOCAL
from host.schedules.proposer import Proposer
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, Card, Size
from host.tlm.model.network import new_model, save_model
from host.tlm.training.example import Example
from host.tlm.training.on_host import Advance, Plan, train_to_the_end
from host.tlm.training.packing import Sample, samples_of
from host.tlm.training.trainer import Schedule, Trainer, trained_rules
from research.pretraining.dataset import Dataset

SENTENCES, STATE = "sentences.jsonl", "training.pt"
# One example in this many is withheld, to measure the loss on tasks that the model has never seen.
_WITHHELD_EACH = 20


@dataclass(frozen=True)
class PretrainOptions:
    """How to pre-train.

    Attributes:
        out: folder of data, state and checkpoint.
        steps: total number of batches.
        examples: number of examples to make; one in 20 is withheld from training.
        seed: seed of data, weights and batches.
        resume: continue with what is in the folder.
        batch: number of tasks in one step.
        learning_rate: the largest rate; it rises over `warm_up` steps and falls to zero as a cosine.
        warm_up: number of steps over which the rate rises.
        save_every: number of steps between two saved states.
        size: size of the network.
        jobs: number of processes that make the examples; it changes nothing but the time.
        engine: whose hosts make them in place of these, and train; see `host.execution.open_engine`.
    """

    out: Path
    steps: int = 20000
    examples: int = 20000
    seed: int = 0
    resume: bool = False
    batch: int = 16
    learning_rate: float = 1e-3
    warm_up: int = 100
    save_every: int = 200
    size: Size = field(default_factory=Size)
    jobs: int = 1
    engine: str = LOCAL


@dataclass(frozen=True)
class Progress:
    """How far the pre-training is.

    Attributes:
        stage: "sentences" or "training".
        done, total: number of examples or steps.
        loss: mean over the decisions' tokens of the last steps, natural logarithm.
        withheld_loss: the same for the withheld tasks; NaN until it is known.
    """

    stage: str
    done: int
    total: int
    loss: float = math.nan
    withheld_loss: float = math.nan


def pretrain(options: PretrainOptions, teacher: Proposer, report: Callable[[Progress], None]) -> Card:
    """Makes the examples that are missing, trains, and writes a checkpoint into the folder.

    Raises:
        TlmError: the folder holds another training, or holds a training and `resume` is not set.
    """
    vocabulary = Vocabulary()
    if not options.resume and any((options.out / name).exists() for name in (STATE, SENTENCES, CARD)):
        raise TlmError(f"{options.out}: there is a training already; add --resume or choose another folder")
    data = Dataset(options.out / SENTENCES, options.seed, vocabulary)
    state = options.out / STATE
    with closing(open_engine(options.engine)) as engine:
        for example in data.grow(options.examples, teacher, options.jobs, engine):
            report(Progress("sentences", example.index + 1, options.examples))
        trained, withheld = split(data.examples[: options.examples])
        if not trained or not withheld:
            raise TlmError(
                f"{options.examples} examples are too few to train on: at least {_WITHHELD_EACH + 1}"
            )

        def told(done: Advance) -> None:
            report(Progress("training", done.step, options.steps, done.loss, done.withheld_loss))

        first = state.read_bytes() if state.exists() else b""
        plan = Plan(Training, (options, trained, withheld), options.steps, state, first)
        kept = train_to_the_end(engine, plan, told)
    trainer = trainer_for(options, vocabulary)
    trainer.restore(kept, str(state))
    return save_model(
        trainer.model,
        options.out,
        vocabulary,
        options.size,
        "",
        _history(options, trainer, data),
        trained_rules(trainer.seen, vocabulary),
    )


def split(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """The examples to train on, and the withheld ones. Examples that were left out are in neither."""
    used = [example for example in examples if example.programs]
    return (
        [example for example in used if example.index % _WITHHELD_EACH],
        [example for example in used if not example.index % _WITHHELD_EACH],
    )


def _history(options: PretrainOptions, trainer: Trainer, data: Dataset) -> dict[str, Any]:
    """The facts about the training for the card."""
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


class Training:
    """The object of the actor that trains; it does nothing before `begin`.

    Args:
        options: how to train.
        trained: examples to train on.
        withheld: examples for the loss on tasks that the model has never seen.
    """

    def __init__(
        self, options: PretrainOptions, trained: Sequence[Example], withheld: Sequence[Example]
    ) -> None:
        self._options = options
        self._trained = trained
        self._withheld = withheld
        self._trainer: Trainer | None = None

    def begin(self, state: bytes) -> Advance:
        """Begin, or go on from a state that is not empty.

        Raises:
            TlmError: the state is damaged, or of another training.
        """
        self._vocabulary = Vocabulary()
        self._best = [samples_of(example, self._vocabulary, 1)[0] for example in self._withheld]
        self._trainer = trainer = trainer_for(self._options, self._vocabulary)
        if state:
            trainer.restore(state, str(self._options.out))
        return Advance(trainer.step, trainer.recent_loss, trainer.withheld_loss)

    def advance(self, steps: int) -> Advance:
        """Take some steps, at most up to the next state; none of them gives the state as it is.

        Raises:
            HostLost: it has not begun in this process: the one before it ended.
        """
        trainer, options = self._trainer, self._options
        if trainer is None:
            raise HostLost("the process that trains was started anew")
        state = b"" if steps else trainer.state()
        for _ in range(min(steps, options.steps - trainer.step)):
            trainer.train(batch_of(options, self._trained, trainer.step, self._vocabulary))
            if trainer.step % options.save_every == 0 or trainer.step == options.steps:
                trainer.withheld_loss = trainer.loss_of(self._best, options.batch)
                state = trainer.state()
                break
        return Advance(trainer.step, trainer.recent_loss, trainer.withheld_loss, state)


def trainer_for(options: PretrainOptions, vocabulary: Vocabulary) -> Trainer:
    """A trainer of a network with random weights."""
    key = {
        "seed": options.seed,
        "batch": options.batch,
        "learning_rate": options.learning_rate,
        "size": asdict(options.size),
    }
    schedule = Schedule(options.steps, options.learning_rate, options.warm_up)
    return Trainer(new_model(vocabulary, options.size, options.seed), vocabulary, schedule, key)


def batch_of(
    options: PretrainOptions, examples: Sequence[Example], step: int, vocabulary: Vocabulary
) -> list[Sample]:
    """The batch of a step: all programs of randomly chosen tasks."""
    generator = random.Random(f"{options.seed}/batch/{step}")
    return [
        sample
        for example in generator.choices(examples, k=options.batch)
        for sample in samples_of(example, vocabulary)
    ]
