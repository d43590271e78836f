"""Pre-training on programs that were not measured: the examples are made, and the model learns them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from host.errors import TlmError
from host.execution import open_engine
from host.schedules.families import rule_versions
from host.schedules.proposer import Proposer
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, Card
from host.tlm.model.network import save_model
from host.tlm.training.on_host import Advance
from host.tlm.training.trainer import trained_rules
from research.pretraining.dataset import Dataset
from research.pretraining.training import (
    SENTENCES,
    STATE,
    WITHHELD_EACH,
    PretrainOptions,
    StateFile,
    history_of,
    split,
    train_to_the_end,
    trainer_for,
)


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
    state = StateFile(options.out / STATE)
    with closing(open_engine(options.engine)) as engine:
        for example in data.grow(options.examples, teacher, options.jobs, engine):
            report(Progress("sentences", example.index + 1, options.examples))
        trained, withheld = split(data.examples[: options.examples])
        if not trained or not withheld:
            raise TlmError(
                f"{options.examples} examples are too few to train on: at least {WITHHELD_EACH + 1}"
            )

        def told(done: Advance) -> None:
            report(Progress("training", done.step, options.steps, done.loss, done.withheld_loss))

        train_to_the_end(engine, options, trained, withheld, state, told)
    # What was trained elsewhere is here as this file.
    trainer = trainer_for(options, vocabulary)
    trainer.restore(state.read(), str(state.path))
    return save_model(
        trainer.model,
        options.out,
        vocabulary,
        options.size,
        "",
        history_of(options, trainer, data.examples[: options.examples]),
        trained_rules(trainer.seen, vocabulary, rule_versions()),
    )
