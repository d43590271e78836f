"""Draws operators on halves, which GPUs and x86 with AVX-512 BF16 have other programs for."""

from __future__ import annotations

from host.lowering.graph import Value
from research.pretraining.operator_sampler import HEADS, Draw

_HALF, _BFLOAT16 = "float16", "bfloat16"


def dense(draw: Draw, kind: str = _HALF) -> Value:
    """A layer whose activations lie in memory as halves; so will its weights."""
    rows, depth, columns = draw.length(), draw.channels(), draw.channels()
    data = draw.input(rows, depth, dtype=kind)
    wide = draw.builder.cast(data, "float32")
    result = draw.builder.one("dense", [wide, draw.weight(depth, columns)], (rows, columns), "float32")
    return draw.builder.cast(draw.activation(result), kind)


def bfloat16_dense(draw: Draw) -> Value:
    """A layer whose activations and weights are numbers of bfloat16."""
    return dense(draw, _BFLOAT16)


def bfloat16_convolution(draw: Draw) -> Value:
    """A convolution of such numbers."""
    size, depth, columns = draw.image(), draw.channels(1024), draw.channels(1024)
    kernel, stride = draw.random.choice((1, 3, 3, 3, 5, 7)), draw.random.choice((1, 1, 1, 2))
    pad = kernel // 2
    made = (size + 2 * pad - kernel) // stride + 1
    data = draw.builder.cast(draw.input(1, size, size, depth, dtype=_BFLOAT16), "float32")
    result = draw.builder.one(
        "conv",
        [data, draw.weight(kernel, kernel, depth, columns)],
        (1, made, made, columns),
        "float32",
        strides=(stride, stride),
        padding=(pad,) * 4,
        dilation=(1, 1),
        groups=1,
    )
    return draw.builder.cast(draw.epilogue(result), _BFLOAT16)


def depthwise(draw: Draw) -> Value:
    """A convolution of each channel by itself, between activations that lie in memory as halves."""
    size, channels = draw.image(), draw.channels(1280)
    kernel, stride = draw.random.choice((3, 3, 5, 7)), draw.random.choice((1, 1, 2))
    pad = kernel // 2
    made = (size + 2 * pad - kernel) // stride + 1
    data = draw.builder.cast(draw.input(1, size, size, channels, dtype=_HALF), "float32")
    result = draw.builder.one(
        "conv",
        [data, draw.weight(kernel, kernel, 1, channels)],
        (1, made, made, channels),
        "float32",
        strides=(stride, stride),
        padding=(pad,) * 4,
        dilation=(1, 1),
        groups=channels,
    )
    return draw.builder.cast(draw.epilogue(result), _HALF)


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
