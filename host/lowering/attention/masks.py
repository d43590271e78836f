"""What is added to scores, or chosen in their place, before softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, broadcast_shape, constant

# What a mask adds at least to a score that has no weight.
_EXCLUDED = -1e4
# What excludes a score by itself: a row of nothing else has equal scores.
LOWEST = -3.4028234663852886e38
# What a choice puts in place of a score, where the score would be lost in it if it were added.
_SWALLOWS = -1e9


@dataclass(frozen=True)
class Choice:
    """A condition by which scores are kept, or a low number takes their place.

    Attributes:
        condition: of the choice.
        kept: whether scores are kept where it holds; else where it does not.
        low: the number.
    """

    condition: Value
    kept: bool
    low: float


def excluding(condition: Value, chosen: Value, other: Value) -> Choice | None:
    """A choice between scores and a number so low that the score has no weight.

    Args:
        condition: of the choice.
        chosen: where it holds.
        other: where it does not; this or `chosen` is the number.
    """
    low = other.scalar() if other.is_constant else chosen.scalar()
    if low is None or low > _EXCLUDED:
        return None
    return Choice(condition, other.is_constant, low)


def joined(builder: Builder, masks: Sequence[Value | Choice]) -> Value | None:
    """What is added to scores in place of all masks; None where that is not the same.

    A number that takes the place of a score is added to it instead. That is the same where a row has another
    score that no mask excludes, and where the score is lost in the number.

    Args:
        builder: of the graph.
        masks: in the order in which scores meet them; they broadcast together.
    """
    lows = {mask.low for mask in masks if isinstance(mask, Choice)}
    only_choices = len(lows) == 1 and all(isinstance(mask, Choice) for mask in masks)
    total: Value | None = None
    for mask in masks:
        if isinstance(mask, Value):
            total = mask if total is None else builder.binary("add", total, mask)
            continue
        # Of scores that nothing else has changed, those without weight may be any equal numbers.
        low = LOWEST if only_choices and np.isfinite(mask.low) else mask.low
        others = constant(0.0, "float32") if total is None else total
        shape = broadcast_shape(mask.condition.shape, others.shape)
        numbers = (others, constant(low, others.dtype))
        choices = numbers if mask.kept else numbers[::-1]
        total = builder.one("where", [mask.condition, *choices], shape, others.dtype)
    if total is None or not lows:
        return total
    if total.data is None:
        return total if only_choices or max(lows) <= _SWALLOWS else None
    # A row of nothing but excluded scores is the mean of all values.
    return total if (np.atleast_1d(total.data) > _EXCLUDED).any(axis=-1).all() else None


def causal_offset(mask: Value, rows: int, columns: int) -> int | None:
    """By how much the last column that a row may see exceeds the row's number; None for any other mask."""
    if mask.data is None or mask.shape[-2:] != (rows, columns) or mask.size != rows * columns:
        return None
    seen = mask.data.reshape(rows, columns)
    offset = int((seen[0] == 0).sum()) - 1
    causal = np.arange(columns)[None] <= np.arange(rows)[:, None] + offset
    if offset < 0 or (seen[causal] != 0).any() or (seen[~causal] > _EXCLUDED).any():
        return None
    return offset
