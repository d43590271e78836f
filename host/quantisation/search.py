"""Which layers stay in floats: those that lose most alone, until the error is allowed.

The errors of layers add up roughly where they are small, so the order of what they lose alone is a good order
of leaving them out. The error of each candidate is measured, not added up.
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
    """The layers that stay in floats, and the errors that the search measured.

    Attributes:
        kept: indices of the groups that stay in floats.
        tried: error by the number of groups kept; the first of `order` are kept.
    """

    kept: tuple[int, ...]
    tried: dict[int, float]


def grouped(layers: int, model_bytes: int) -> list[tuple[int, ...]]:
    """Layers that are measured together: each by itself, or neighbours where the model is large.

    Args:
        layers: number of them.
        model_bytes: of the model file.
    """
    least, greatest = _GROUPS
    most = min(greatest, max(least, _BYTES_IN_ALL // max(model_bytes, 1)))
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
    """The fewest groups that have to stay in floats, as far as the order of their losses shows.

    All of `steps` are measured, and the gap before the first that is within the bound is halved. The number
    of measurements is at most 2 log2 of the groups.

    Args:
        order: the groups, that which loses most first.
        error: of the model with some groups kept in floats.
        bound: the largest error that is allowed.

    Returns:
        None where only a model without a quantised layer is within the bound.
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
