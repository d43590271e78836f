"""Draws products of halves, which GPUs have other programs for."""

from __future__ import annotations

from host.lowering.graph import Value
from research.pretraining.operator_sampler import HEADS, Draw

_HALF = "float16"


def dense(draw: Draw) -> Value:
    """A layer whose activations lie in memory as halves; so will its weights."""
    rows, depth, columns = draw.length(), draw.channels(), draw.channels()
    data = draw.input(rows, depth, dtype=_HALF)
    wide = draw.builder.cast(data, "float32")
    result = draw.builder.one("dense", [wide, draw.weight(depth, columns)], (rows, columns), "float32")
    return draw.builder.cast(draw.activation(result), _HALF)


def batched(draw: Draw) -> Value:
    """The products of attention: queries and keys, or shares and values."""
    heads, width = draw.random.choice(HEADS), draw.random.choice((32, 64, 64, 80, 128))
    length, other = draw.length(), draw.length()
    rows, depth, columns = (length, width, other) if draw.chance(0.5) else (length, other, width)
    left = draw.input(heads, rows, depth, dtype=_HALF)
    right = draw.input(heads, depth, columns, dtype=_HALF)
    wide = [draw.builder.cast(value, "float32") for value in (left, right)]
    result = draw.builder.one("matmul", wide, (heads, rows, columns), "float32")
    return draw.builder.cast(result, _HALF)
