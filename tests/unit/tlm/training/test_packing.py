"""Programs in one row lose what they lose alone."""

from __future__ import annotations

import math
import random

import pytest
import torch

from host.tlm.language.vocabulary import PAD, Vocabulary
from host.tlm.model.card import Size
from host.tlm.model.gpt2 import LanguageModel
from host.tlm.model.network import new_model
from host.tlm.training.packing import Sample, pack
from host.tlm.training.trainer import Schedule, Trainer, log_probabilities

VOCABULARY = Vocabulary()
SIZE = Size(layers=2, heads=2, width=32)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return new_model(VOCABULARY, SIZE, 3).eval()


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Three tasks, the second with one program."""
    generator = random.Random(5)

    def text(length: int) -> tuple[int, ...]:
        return tuple(generator.randrange(4, len(VOCABULARY)) for _ in range(length))

    prompts = (text(11), text(23), text(5))
    programs = ((0, 4), (0, 7), (0, 1), (1, 9), (2, 3), (2, 12))
    return [Sample((*prompts[task], *text(1)), text(length)) for task, length in programs]


def _alone(model: LanguageModel, sample: Sample) -> float:
    """Log-likelihood by the definition: every token after all before it."""
    tokens = torch.tensor([[*sample.context, *sample.target]])
    with torch.inference_mode():
        shares = torch.log_softmax(model(tokens)[0], dim=-1)
    start = len(sample.context) - 1
    return sum(float(shares[start + at, token]) for at, token in enumerate(sample.target))


def test_programs_share_their_prompt_and_see_nothing_of_each_other(
    model: LanguageModel, samples: list[Sample]
) -> None:
    packed = pack(samples, VOCABULARY.number(PAD), torch.device("cpu"))
    assert packed.tokens.shape == (3, 23 + 1 + 9)
    found = log_probabilities(model, samples, VOCABULARY.number(PAD), batch=4)
    assert found == pytest.approx([_alone(model, sample) for sample in samples], rel=1e-4)


def test_the_loss_is_a_mean_by_the_weights_of_the_samples(
    model: LanguageModel, samples: list[Sample]
) -> None:
    training = Trainer(model, VOCABULARY, Schedule(1, 1e-3, 1), {})
    weighted = [
        Sample(one.context, one.target, weight)
        for one, weight in zip(samples, (1, 0, 0.5, 0, 0, 2), strict=True)
    ]
    said = sum(one.weight * _alone(model, one) for one in weighted)
    count = sum(one.weight * len(one.target) for one in weighted)
    assert float(training.loss(weighted).detach()) == pytest.approx(-said / count, rel=1e-4)


def test_a_loss_that_is_no_number_changes_no_weight(samples: list[Sample]) -> None:
    training = Trainer(new_model(VOCABULARY, SIZE, 3), VOCABULARY, Schedule(4, 1e-2, 1), {})
    training.train(samples)
    before = [weights.detach().clone() for weights in training.model.parameters()]
    loss = training.recent_loss
    training.train([Sample(one.context, one.target, math.nan) for one in samples])
    assert all(
        torch.equal(one, other) for one, other in zip(before, training.model.parameters(), strict=True)
    )
    assert training.step == 2 and training.recent_loss == loss
    training.train(samples)
    assert not all(torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True))
