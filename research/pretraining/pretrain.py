"""Pre-training on programs that nobody measured, with a constructive proposer as the teacher.

Batch number n of a seed depends on nothing but both, and nothing else is drawn, so that a run that was cut
off and continued ends as one that was not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from host.errors import TlmError
from host.schedules.proposer import Proposer
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, Card, Size, write_whole
from host.tlm.model.network import new_model, save_model
from host.tlm.training.example import Example
from host.tlm.training.packing import Sample, samples_of
from host.tlm.training.trainer import Schedule, Trainer, trained_rules
from research.pretraining.dataset import Dataset

SENTENCES, STATE = "sentences.jsonl", "training.pt"
# Every so many-th example is withheld to see what is learned about tasks never seen.
_WITHHELD_EACH = 20


@dataclass(frozen=True)
class PretrainOptions:
    """How to pre-train.

    Attributes:
        out: folder of data, state and checkpoint.
        steps: batches in all.
        examples: tasks to train on.
        seed: of data, weights and batches.
        resume: go on with what is in the folder.
        batch: tasks of one step.
        learning_rate: largest; it rises over `warm_up` steps and falls to zero as a cosine.
        warm_up: steps.
        save_every: steps between two states on disk.
        size: of the network.
        jobs: processes that make the examples; their number changes nothing but the time.
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


def pretrain(options: PretrainOptions, teacher: Proposer, report: Callable[[Progress], None]) -> Card:
    """Makes what is missing of the data, trains, and writes a checkpoint into the folder.

    Raises:
        TlmError: the folder holds another training, or one that was not asked to go on.
    """
    vocabulary = Vocabulary()
    if not options.resume and any((options.out / name).exists() for name in (STATE, SENTENCES, CARD)):
        raise TlmError(f"{options.out}: there is a training already; add --resume or choose another folder")
    data = Dataset(options.out / SENTENCES, options.seed, vocabulary)
    for example in data.grow(options.examples, teacher, options.jobs):
        report(Progress("sentences", example.index + 1, options.examples))
    trained, withheld = split(data.examples[: options.examples])
    if not trained or not withheld:
        raise TlmError(f"{options.examples} examples are too few to train on: at least {_WITHHELD_EACH + 1}")
    trainer = trainer_for(options, vocabulary)
    best = [samples_of(example, vocabulary, 1)[0] for example in withheld]
    state = options.out / STATE
    if state.exists():
        trainer.restore(state)
    while trainer.step < options.steps:
        trainer.train(batch_of(options, trained, trainer.step, vocabulary))
        if trainer.step % options.save_every == 0 or trainer.step == options.steps:
            trainer.withheld_loss = trainer.loss_of(best, options.batch)
            write_whole(state, trainer.state())
        report(Progress("training", trainer.step, options.steps, trainer.recent_loss, trainer.withheld_loss))
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


def trainer_for(options: PretrainOptions, vocabulary: Vocabulary) -> Trainer:
    """A network with random weights, ready to be trained."""
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
    """The batch of a step: all programs of some tasks."""
    generator = random.Random(f"{options.seed}/batch/{step}")
    return [
        sample
        for example in generator.choices(examples, k=options.batch)
        for sample in samples_of(example, vocabulary)
    ]
