"""Steps of a training whose gradients overflow."""

from __future__ import annotations

import math

import pytest
import torch

from host.errors import TlmError
from host.tlm.language.vocabulary import Vocabulary
from host.tlm.model.card import Size
from host.tlm.model.network import new_model
from host.tlm.training.packing import Sample
from host.tlm.training.trainer import Schedule, Trainer

_GOOD, _BAD = Sample((5, 6, 7), (8, 9)), Sample((5, 6, 7), (8, 9), weight=math.inf)


@pytest.fixture
def trainer() -> Trainer:
    vocabulary = Vocabulary()
    model = new_model(vocabulary, Size(layers=1, heads=2, width=16), 0)
    return Trainer(model, vocabulary, Schedule(100, 1e-3, 1), {})


def test_a_batch_whose_gradient_is_no_number_changes_nothing(trainer: Trainer) -> None:
    trainer.train([_GOOD])
    before = [one.clone() for one in trainer.model.parameters()]
    trainer.train([_BAD])
    assert trainer.step == 2
    assert math.isfinite(trainer.recent_loss)
    assert all(torch.equal(one, other) for one, other in zip(before, trainer.model.parameters(), strict=True))
    trainer.train([_GOOD])
    assert not all(
        torch.equal(one, other) for one, other in zip(before, trainer.model.parameters(), strict=True)
    )


def test_a_training_that_diverges_ends_with_a_reason(trainer: Trainer) -> None:
    with pytest.raises(TlmError, match="training diverges"):
        for _ in range(30):
            trainer.train([_BAD])
    assert trainer.step < 30
