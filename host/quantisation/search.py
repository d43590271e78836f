"""Which layers stay in the wider type: those whose loss is the worst bargain, until the error is allowed.

The errors of layers add up roughly where they are small, so the order of what they lose alone is a good order
of leaving them out. The error of each candidate is measured, not added up. Quantising to bytes and choosing
among types of half precision (`host.compile.numeric_types`) search in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# A step of the search writes and loads the whole model: so many bytes of models in all for what layers lose
# alone, between the least and the greatest number of groups.
_BYTES_IN_ALL = 6_000_000_000
_GROUPS = (16, 160)


@dataclass(frozen=True)
class SearchResult:
    """The layers that stay in the wider type, and the errors that the search measured.

    Attributes:
        kept: indices of the groups that stay so.
        tried: error by the number of groups kept; the first of `order` are kept.
    """

    kept: tuple[int, ...]
    tried: dict[int, float]


def most_groups(model_bytes: int) -> int:
    """How many groups of layers are quantised alone, by the size of the model file."""
    least, greatest = _GROUPS
    return min(greatest, max(least, _BYTES_IN_ALL // max(model_bytes, 1)))


def grouped(layers: int, most: int) -> list[tuple[int, ...]]:
    """Layers that are measured together: each by itself, or neighbours where there are many.

    Args:
        layers: number of them.
        most: groups, at least one.
    """
    size = -(-layers // most)
    return [tuple(range(first, min(first + size, layers))) for first in range(0, layers, size)]


def steps(groups: int) -> list[int]:
    """Numbers of groups that are kept on the way: none, 1, 2, 4 and so on, without all."""
    found = [0]
    while (following := max(1, 2 * found[-1])) < groups:
        found.append(following)
    return found


def least_kept(
    order: Sequence[int], error: Callable[[Sequence[int]], float], bound: float
) -> SearchResult | None:
    """The fewest groups that have to stay in the wider type, as far as the order of their losses shows.

    All of `steps` are measured, and the gap before the first that is within the bound is halved. The number
    of measurements is at most 2 log2 of the groups.

    Args:
        order: the groups, that which is kept first in front.
        error: of the model with some groups kept.
        bound: the largest error that is allowed.

    Returns:
        None where only a model that keeps every layer is within the bound.
    """
    tried = {count: error(order[:count]) for count in steps(len(order))}
    within = [count for count in sorted(tried) if tried[count] <= bound]
    high = within[0] if within else len(order)
    low = max((count for count in tried if count < high), default=-1)
    while high - low > 1:
        middle = (low + high) // 2
        tried[middle] = error(order[:middle])
        if tried[middle] <= bound:
            high = middle
        else:
            low = middle
    if high == len(order):
        return None
    return SearchResult(tuple(order[:high]), dict(sorted(tried.items())))
