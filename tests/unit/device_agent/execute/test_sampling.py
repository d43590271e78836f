"""How the next token is chosen, with NumPy and without."""

from __future__ import annotations

import array
import collections
import math
import sys

import pytest

from device_agent.errors import AgentError
from device_agent.execute.text.sampling import Sampler, Sampling


def data(*logits: float) -> bytearray:
    return bytearray(array.array("f", logits).tobytes())


@pytest.fixture(params=[True, False], ids=["numpy", "plain"])
def with_numpy(request, monkeypatch):
    if not request.param:
        monkeypatch.setitem(sys.modules, "numpy", None)


@pytest.mark.usefixtures("with_numpy")
class TestBothWays:
    def test_the_most_likely_token_is_taken_and_of_equal_ones_the_first(self):
        assert Sampler(Sampling()).choose(data(-1, 4, 3, 4)) == 1
        assert Sampler(Sampling()).choose(data(0.0, -0.0)) == 0

    def test_the_same_seed_draws_the_same(self):
        logits = data(*(0.1 * number for number in range(50)))

        def drawn(seed: int) -> list[int]:
            sampler = Sampler(Sampling(temperature=1.0, seed=seed))
            return [sampler.choose(logits) for _ in range(30)]

        assert drawn(1) == drawn(1) != drawn(2)

    @pytest.mark.parametrize("how", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}])
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_logits_that_are_no_numbers_are_refused(self, how, value):
        with pytest.raises(AgentError, match="gives no logits behind this text"):
            Sampler(Sampling(**how)).choose(data(0.0, 2.0, value, 1.0))

    def test_numbers_are_those_of_splitmix64(self):
        # The first results of its reference implementation for this seed.
        drawn = [6457827717110365317, 3203168211198807973, 9817491932198370423]
        sampler = Sampler(Sampling(temperature=1.0, seed=1234567))
        # Of 2^12 tokens that are as likely, the first 12 of the 64 bits say which.
        equal = data(*[0.0] * (1 << 12))
        assert [sampler.choose(equal) for _ in drawn] == [one >> 52 for one in drawn]

    def test_of_equal_tokens_the_first_are_the_likeliest(self):
        sampler = Sampler(Sampling(temperature=1.0, top_k=3))
        assert {sampler.choose(data(0.0, 2.0, *[1.0] * 40)) for _ in range(200)} == {1, 2, 3}

    @pytest.mark.parametrize(
        ("how", "possible"),
        [
            ({}, {0, 1, 2, 3}),
            ({"top_k": 2}, {1, 3}),
            ({"top_k": 1}, {3}),
            ({"top_k": 9}, {0, 1, 2, 3}),
            ({"top_p": 0.5}, {3}),
            ({"top_p": 0.7}, {1, 3}),
            ({"top_k": 2, "top_p": 0.99}, {1, 3}),
            ({"temperature": 1e-3}, {3}),
        ],
    )
    def test_only_the_likeliest_are_drawn(self, how, possible):
        # Probabilities of 0.08, 0.25, 0.08 and 0.6.
        sampler = Sampler(Sampling(**{"temperature": 1.0, "seed": 3, **how}))
        found = collections.Counter(sampler.choose(data(-2.0, -0.9, -2.0, 0.0)) for _ in range(300))
        assert set(found) == possible and found.most_common(1)[0][0] == 3

    def test_many_tokens_that_are_all_as_likely_can_be_drawn(self):
        sampler = Sampler(Sampling(temperature=1.0, top_p=0.9))
        found = {sampler.choose(data(*[1.0] * 1000)) for _ in range(200)}
        # The likeliest nine tenths, of which there are more than are looked at first.
        assert max(found) > 600 and max(found) <= 900


def test_the_most_likely_token_is_the_same_with_and_without_numpy(monkeypatch):
    import numpy as np

    logits = [bytearray(row.tobytes()) for row in np.random.default_rng(0).normal(size=(20, 999)).astype("f")]
    with_it = [Sampler(Sampling()).choose(row) for row in logits]
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert [Sampler(Sampling()).choose(row) for row in logits] == with_it


@pytest.mark.parametrize(
    "wrong",
    [
        *({"temperature": value} for value in (-1.0, float("nan"), float("inf"))),
        *({"top_p": value} for value in (0.0, 1.5, float("nan"))),
        {"top_k": -1},
    ],
)
def test_values_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sampler(Sampling(**wrong))
