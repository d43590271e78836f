"""What a compiled program may round further than its steps do, and the choice of what it does round.

Errors of independent roundings add up as their squares do, so that those of a few parts alone say what is to
be expected of each set of them. What is chosen is then computed as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

# Kinds of parts: products of layers, those that make queries and keys, what attention multiplies, the cache
# of keys and values, and all that lies between kernels of a model in half precision.
PRODUCTS, SCORES, ATTENTION, CACHE = "products", "scores", "attention", "cache"
BETWEEN = "between"
# Standard deviations above the mean of a normal distribution: one place of 2,000 is farther off.
_DEVIATIONS = 3.3
# Places from which the upper half of a distribution is known a little.
_FEWEST = 16
# The largest exponent of a power that is a number.
_MOST_EXPONENT = 709.0
# Sets that are computed as a whole before everything keeps its precision.
_TRIES = 3


@dataclass(frozen=True)
class Part:
    """Something that a program may round or not.

    Attributes:
        kind: `PRODUCTS`, `SCORES`, `ATTENTION`, `CACHE` or `BETWEEN`.
        name: what a line about it says.
        cost: what leaving it exact costs, in a measure that all parts share.
        products: weights of the products, by their names in the files; of the first two kinds.
    """

    kind: str
    name: str
    cost: float
    products: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Asked:
    """What is to be judged.

    Attributes:
        texts: (n, T) int32, texts of one length; every token is a place at which logits may move.
        parts: of the program that may be rounded.
        allowed: how far logits may move, see `bound`.
        tiles: whether products that round do it as registers of matrices have them: activations and weights
            to bfloat16, and activations to bytes where groups of weights are not whole rows of a tile.
        half_sums: whether products in half precision add up in it.
    """

    texts: np.ndarray
    parts: tuple[Part, ...]
    allowed: float
    tiles: bool = False
    half_sums: bool = False


@dataclass(frozen=True)
class Judgement:
    """What was found about the parts of a program.

    Attributes:
        rounded: numbers of the parts that may be rounded.
        all: how far logits may move where all parts are rounded, see `bound`.
        left: the same with those of `rounded`.
        alone: the same of each part alone; none where all parts are rounded.
    """

    rounded: tuple[int, ...]
    all: float
    left: float
    alone: tuple[float, ...] = ()


def bound(moved: np.ndarray) -> float:
    """How far off logits are that hardly any place exceeds, by how far they are off at some places.

    Texts differ in how far they are off, and their places alike from that: each is divided by the median of
    its text. The logarithms of the upper half of all are taken for those of a normal distribution: its median
    and its 95th percentile are continued to one place of 2,000, and further where they are wide apart: such
    distributions have more of their places far out. That is so for the text with the largest median. No less
    than the largest of all.

    Args:
        moved: (texts, n) or (n) of one text: how far logits of each place are off, as part of the largest
            there. Texts of few places are taken for one.

    Returns:
        Infinite where one is no number.
    """
    texts = np.atleast_2d(moved)
    if not texts.size or not np.isfinite(texts).all():
        return math.inf
    largest = float(texts.max())
    if texts.shape[1] < _FEWEST:
        texts = texts.reshape(1, -1)
    medians = np.median(texts, axis=1)
    known = medians > 0
    if texts.shape[1] < _FEWEST or not known.any():
        return largest
    with np.errstate(over="ignore"):
        shares = texts[known] / medians[known, None]
    median, high = (float(one) for one in np.quantile(shares, (0.5, 0.95)))
    # The 95th percentile is 1.645 deviations above the median.
    deviation = math.log(high / median) / 1.645
    exponent = min(_DEVIATIONS * deviation + deviation**2 / 2, _MOST_EXPONENT)
    return max(largest, float(medians.max()) * math.exp(exponent))


def judged(
    parts: Sequence[Part],
    allowed: float,
    moved_by: Callable[[Sequence[tuple[int, ...]]], Sequence[np.ndarray]],
) -> Judgement:
    """The parts that may be rounded, at the least cost of the others.

    Args:
        parts: that there are.
        allowed: how far logits may move, see `bound`.
        moved_by: how far logits move at some places where the parts of each set are rounded.
    """
    every = tuple(range(len(parts)))
    (together,) = map(bound, moved_by([every]))
    if together <= allowed or not parts:
        return Judgement(every, together, together)
    none, *alone = map(bound, moved_by([(), *((one,) for one in every)]))
    wanted = allowed
    for _ in range(_TRIES):
        chosen = _cheapest(parts, none, alone, wanted)
        if not chosen:
            break
        (left,) = map(bound, moved_by([chosen]))
        if left <= allowed:
            return Judgement(chosen, together, left, tuple(alone))
        # More than the parts alone let expect: the next set is to be better by as much.
        wanted = 0.98 * min(wanted, allowed * _expected(none, [alone[one] for one in chosen]) / left)
    return Judgement((), together, none, tuple(alone))


def _cheapest(parts: Sequence[Part], none: float, alone: Sequence[float], allowed: float) -> tuple[int, ...]:
    """The set of parts within a bound that leaves out the cheapest ones; none where all are too much."""
    sets = [
        one
        for size in range(1, len(parts) + 1)
        for one in combinations(range(len(parts)), size)
        if _possible(parts, one) and _expected(none, [alone[part] for part in one]) <= allowed
    ]

    def order(one: tuple[int, ...]) -> tuple[float, float]:
        return _left_out(parts, one), _expected(none, [alone[part] for part in one])

    return min(sets, key=order, default=())


def _left_out(parts: Sequence[Part], chosen: Sequence[int]) -> float:
    return sum(part.cost for number, part in enumerate(parts) if number not in chosen)


def _expected(none: float, alone: Sequence[float]) -> float:
    if not all(map(math.isfinite, (none, *alone))):
        return math.inf
    return math.sqrt(none**2 + sum(max(one**2 - none**2, 0.0) for one in alone))


def _possible(parts: Sequence[Part], chosen: Sequence[int]) -> bool:
    """Whether a program rounds such a set.

    Queries, keys and attention are rounded beside products alone, and attention where the cache is too.
    """
    kinds = {parts[one].kind for one in chosen}
    there = {part.kind for part in parts}
    if kinds & {SCORES, ATTENTION} and PRODUCTS not in kinds:
        return False
    return ATTENTION not in kinds or CACHE in kinds or CACHE not in there
