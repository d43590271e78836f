"""A small network that learns the shipped sample of pre-training: what is fine-tuned many times."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path

from host.schedules.families import rule_versions
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import CARD, Size
from host.tlm.model.checkpoints import SHIPPED
from host.tlm.model.network import new_model, save_model
from host.tlm.training.packing import samples_of
from host.tlm.training.replay import REPLAY, read_replay, write_replay
from host.tlm.training.trainer import Schedule, Trainer

_SIZE = Size(layers=2, heads=4, width=64)
_STEPS, _RATE, _WARM_UP = 600, 3e-3, 20
# Tasks of one step, and programs of each.
_BATCH, _PROGRAMS = 16, 4
# Sentences that a fine-tuning repeats; each training reads all of them.
_REPEATED = 200
# What the network depends on.
DESIGN = {
    **asdict(_SIZE),
    "steps": _STEPS,
    "learning_rate": _RATE,
    "warm_up": _WARM_UP,
    "batch": _BATCH,
    "programs": _PROGRAMS,
    "repeated": _REPEATED,
}


def small_network(folder: Path) -> Path:
    """The checkpoint in a folder, trained where there is none; half a minute of one core."""
    if not (folder / CARD).is_file():
        vocabulary = Vocabulary()
        examples = read_replay(SHIPPED / REPLAY, vocabulary)
        model = new_model(vocabulary, _SIZE, 0)
        trainer = Trainer(model, vocabulary, Schedule(_STEPS, _RATE, _WARM_UP), {})
        samples = [samples_of(one, vocabulary, _PROGRAMS) for one in examples]
        for step in range(_STEPS):
            chosen = random.Random(f"gate/network/{step}").choices(samples, k=_BATCH)
            trainer.train([one for group in chosen for one in group])
        history = {"steps": _STEPS, "loss": round(trainer.recent_loss, 4)}
        save_model(trainer.model, folder, vocabulary, _SIZE, "", history, rule_versions())
        write_replay(folder / REPLAY, examples, _REPEATED, 0, vocabulary)
    return folder
