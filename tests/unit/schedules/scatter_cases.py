"""Scatters that the tests of several rules compute, and how one update combines with what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def scatter_model(
    shape: tuple[int, ...], count: int, axis: int, rows: bool, kind: str, dtype: str
) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """What builds a scatter, and arrays of the shapes and types of its inputs.

    Args:
        shape: of the data.
        count: updates along the axis.
        axis: along which places are.
        rows: whether a row of updates has one index.
        kind: of the reduction, as in `COMBINED`.
        dtype: of the data.
    """
    covered = (*shape[:axis], count, *shape[axis + 1 :])
    given = [np.zeros(shape, dtype), np.zeros((count, 1) if rows else covered, "int64")]

    def build(bb: Any, x: Any, index: Any, updates: Any) -> Any:
        index = bb.emit(relax.op.broadcast_to(index, covered)) if rows else index
        return relax.op.scatter_elements(x, index, updates, axis, kind)

    return build, [*given, np.zeros(covered, dtype)]
