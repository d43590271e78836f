"""Axes that are numbered as one, and loads that run ahead of products."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx


def digits(number: Any, extents: tuple[int, ...]) -> list[Any]:
    """The indices of several axes that are numbered as one."""
    found = []
    for position, extent in enumerate(extents):
        inner = math.prod(extents[position + 1 :])
        found.append(number // inner % extent if position else number // inner)
    return found


def alternating(units: int, load: Any, multiply: Any) -> list[tirx.Stmt]:
    """Loads each unit while the one before it is multiplied."""
    parts = [load(0)]
    for unit in range(units):
        parts += [load(unit + 1)] if unit + 1 < units else []
        parts.append(multiply(unit))
    return parts
