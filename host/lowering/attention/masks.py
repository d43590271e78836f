"""What is added to scores, or chosen in their place, before softmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant

# What a mask adds at least to a score that has no weight.
_EXCLUDED = -1e4
# What excludes a score by itself: a row of nothing else has equal scores.
LOWEST = -3.4028234663852886e38


@dataclass(frozen=True)
class Choice:
    """A condition that is computed, by which scores are kept.

    Attributes:
        condition: of the choice.
        kept: whether scores are kept where it holds; else where it does not.
    """

    condition: Value
    kept: bool


def excluding(condition: Value, chosen: Value, other: Value) -> Value | Choice | None:
    """What to add in place of a choice between scores and a number so low that the score has no weight.

    Args:
        condition: of the choice.
        chosen: where it holds.
        other: where it does not; this or `chosen` is the number.
    """
    low = other.scalar() if other.is_constant else chosen.scalar()
    if low is None or low > _EXCLUDED:
        return None
    if condition.data is None:
        return Choice(condition, other.is_constant)
    kept = condition.data if other.is_constant else ~condition.data
    # A row without any score would be the mean of all values, and is not.
    if not kept.any(axis=-1).all():
        return None
    return constant(np.where(kept, np.float32(0), np.float32(low)))


def as_mask(builder: Builder, mask: Value | Choice) -> Value:
    """What is added to the scores."""
    if isinstance(mask, Value):
        return mask
    nothing, low = constant(0.0, "float32"), constant(LOWEST, "float32")
    choices = (nothing, low) if mask.kept else (low, nothing)
    condition = mask.condition
    return builder.one("where", [condition, *choices], condition.shape, "float32")


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
