"""Which parts of a program are rounded, by how far each moves logits and what it costs to leave it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from host.importers.decoders.reference.judgement import (
    ATTENTION,
    CACHE,
    PRODUCTS,
    SCORES,
    Judgement,
    Part,
    bound,
    judged,
)
from host.importers.decoders.reference.roundings import Roundings, judged_texts

PARTS = (
    Part(PRODUCTS, "products of layer 0", 10.0, ("up.0",)),
    Part(PRODUCTS, "products of layer 1", 10.0, ("up.1",)),
    Part(SCORES, "products that make queries and keys", 4.0, ("q",)),
    Part(ATTENTION, "attention", 3.0),
    Part(CACHE, "keys and values", 30.0),
)


def test_the_bound_continues_the_upper_half_of_a_distribution() -> None:
    draw = np.random.default_rng(0)
    many = np.exp(draw.normal(math.log(3e-3), 0.3, 19_200))
    few = [bound(many[begin : begin + 192]) for begin in range(0, 19_200, 192)]
    # The largest of 192 is nearly always exceeded, what is continued from them is about the largest of all.
    rare = np.quantile(many, 1 - 1 / 2000)
    assert np.mean([many[begin : begin + 192].max() < rare for begin in range(0, 19_200, 192)]) > 0.9
    assert 0.95 * rare < np.median(few) < 1.1 * rare and min(few) > 0.75 * rare


def test_each_text_is_judged_by_its_own_scale() -> None:
    draw = np.random.default_rng(0)
    many = np.exp(draw.normal(math.log(3e-3), 0.3, (100, 3, 64))) * np.array([1.0, 0.2, 3.0])[:, None]
    # The places of the text that moves most: what others do is no reason to expect more of it.
    rare = np.quantile(many[:, 2], 1 - 1 / 2000)
    apart, together = ([bound(one) for one in each] for each in (many, many.reshape(100, 192)))
    assert 0.9 * rare < np.median(apart) < 1.15 * rare and min(apart) > 0.7 * rare
    assert np.median(together) > 2 * rare
    # The order of texts says nothing, nor one whose places are not moved.
    assert bound(many[0, ::-1]) == bound(many[0]) == bound(np.concatenate([many[0], np.zeros((1, 64))]))
    # Few places of each are those of one text.
    assert bound(many[0, :, :8]) == bound(many[0, :, :8].ravel()) > many[0, :, :8].max()


def test_the_bound_is_at_least_what_was_found() -> None:
    one = np.full(64, 1e-3)
    assert bound(one) == 1e-3 and bound(one[:3]) == 1e-3 and bound(0 * one) == 0.0
    one[5] = 1.0
    assert bound(one) == 1.0
    # Most places are not moved at all.
    assert bound(np.where(np.arange(64) < 60, 0.0, one)) == one[60:].max()
    # Nor do they have to be numbers of one size.
    assert bound(np.where(np.arange(64) < 40, 1e-30, 1e-2)) > 1.0
    for broken in (math.nan, math.inf):
        one[3] = broken
        assert bound(one) == math.inf
    assert bound(one[:0]) == math.inf


def found(
    alone: Sequence[float], none: float = 0.0, more: float = 1.0
) -> tuple[Judgement, list[tuple[int, ...]]]:
    """The judgement where squares of errors add up, more where there are several; and what was asked."""
    asked: list[tuple[int, ...]] = []

    def moved_by(sets: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        asked.extend(sets)
        sums = [none**2 + sum(alone[part] ** 2 for part in one) for one in sets]
        return [
            np.full(4, math.sqrt(total) * (more if len(one) > 1 else 1))
            for one, total in zip(sets, sums, strict=True)
        ]

    return judged(PARTS, 10.0, moved_by), asked


def test_where_everything_may_be_rounded_nothing_else_is_asked() -> None:
    judgement, asked = found([4.0, 4.0, 4.0, 4.0, 4.0])
    assert asked == [(0, 1, 2, 3, 4)] and judgement.rounded == asked[0]
    assert judgement.left == judgement.all == pytest.approx(math.sqrt(80))


@pytest.mark.parametrize(
    ("alone", "left_out"),
    [
        # The cheapest one that suffices is left out, whatever moves logits most.
        ([5.0, 5.0, 5.0, 5.0, 5.0], {3}),
        ([8.0, 6.0, 1.0, 1.0, 3.0], {0}),
        ([3.0, 9.0, 1.0, 3.0, 1.0], {3}),
        ([1.0, 1.0, 9.0, 6.0, 1.0], {3}),
        ([1.0, 1.0, 6.0, 9.0, 6.0], {3}),
        ([1.0, 1.0, 11.0, 1.0, 1.0], {2}),
        # Attention is not rounded where a cache in single precision is read.
        ([1.0, 1.0, 1.0, 1.0, 11.0], {3, 4}),
        # Nor anything else of a prompt where no product is.
        ([11.0, 11.0, 1.0, 1.0, 1.0], {0, 1, 2, 3}),
        ([11.0, 11.0, 11.0, 11.0, 11.0], {0, 1, 2, 3, 4}),
    ],
)
def test_what_costs_least_is_left_out(alone: list[float], left_out: set[int]) -> None:
    judgement, asked = found(alone)
    assert set(range(5)) - set(judgement.rounded) == left_out
    assert judgement.alone == pytest.approx(tuple(alone))
    # Each alone is asked for once, beside nothing at all, and what was chosen as a whole.
    assert asked[1:7] == [(), *((one,) for one in range(5))] and judgement.left <= 10.0
    assert not judgement.rounded or asked[-1] == judgement.rounded


def test_a_set_that_moves_logits_further_than_its_parts_let_expect_is_smaller() -> None:
    usual, _ = found([5.0, 5.0, 5.0, 5.0, 5.0])
    judgement, asked = found([5.0, 5.0, 5.0, 5.0, 5.0], more=1.3)
    assert len(judgement.rounded) < len(usual.rounded) and judgement.left <= 10.0
    assert usual.rounded in asked
    judgement, _ = found([5.0, 5.0, 5.0, 5.0, 5.0], more=50.0)
    assert len(judgement.rounded) < 2


def test_what_steps_leave_out_is_in_every_set() -> None:
    judgement, _ = found([1.0, 1.0, 1.0, 1.0, 1.0], none=12.0)
    assert judgement.rounded == () and judgement.left == 12.0


def test_the_roundings_of_a_program() -> None:
    every = Roundings.of(PARTS, Judgement((0, 1, 2, 3, 4), 1.0, 1.0))
    assert every == Roundings(products=True, scores=True, attention=True)
    some = Roundings.of(PARTS, Judgement((0, 4), 1.0, 1.0))
    assert some == Roundings(products=True, exact=frozenset({"up.1"}))
    assert Roundings.of(PARTS, Judgement((), 1.0, 1.0)) == Roundings(
        halves=False, exact=frozenset({"up.0", "up.1"})
    )
    # Without a cache that might be in half precision, none is refused.
    assert Roundings.of(PARTS[:4], Judgement((), 1.0, 1.0)).halves and Roundings.of((), None) == Roundings()


def test_judged_texts_are_of_three_kinds() -> None:
    sample = [*range(100, 180)]
    random, english, repeated = judged_texts(1000, 512, np.random.default_rng(0), sample)
    assert random.shape == english.shape == repeated.shape == (64,)
    assert english.tolist() == sample[:64]
    assert len(set(random.tolist())) > 50 and 2 <= len(set(repeated.tolist())) <= 6
    # A tokenizer that makes few tokens of the text, or tokens that the model does not have, is left out.
    for few in ((), [5, 6], [*range(990, 1060)]):
        _, frequent, _ = judged_texts(1000, 512, np.random.default_rng(0), few)
        assert frequent.min() >= 0 and frequent.max() < 1000 and (frequent < 100).sum() > 25
    assert judged_texts(1, 16, np.random.default_rng(0)).tolist() == [[0] * 16] * 3
