"""Operators drawn at random, of the kinds and sizes that networks have, as graphs for lowering."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Shape, Value, constant

# Bounds on what is drawn: elements of one tensor, and multiply-adds of one operator.
_MOST_ELEMENTS, _MOST_WORK = 1 << 23, 1 << 31
_IMAGES = (4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 19, 20, 24, 26, 28, 30, 32, 36, 38, 40, 48, 52, 56, 60)
_LARGE_IMAGES = (64, 72, 75, 80, 96, 104, 112, 120, 128, 144, 150, 160, 192, 208, 224)
_LENGTHS = (1, 7, 10, 16, 17, 32, 49, 50, 64, 77, 96, 100, 128, 144, 196, 197, 256, 384, 512, 577, 1024)
_ACTIVATIONS = ("", "relu", "clip", "silu", "gelu", "sigmoid", "hard_swish", "leaky_relu", "tanh")


class _Draw:
    """One operator under construction."""

    def __init__(self, generator: random.Random) -> None:
        self.random = generator
        self.builder = Builder()
        self.inputs: list[Value] = []

    def input(self, *shape: int) -> Value:
        """An activation."""
        self.inputs.append(Value(tuple(shape), "float32", name=f"x{len(self.inputs)}"))
        return self.inputs[-1]

    def weight(self, *shape: int) -> Value:
        """A constant whose elements differ, so that lowering does not take it for a scalar."""
        period = np.linspace(-1.0, 1.0, 1021, dtype="float32")
        return constant(np.resize(period, shape))

    def channels(self, most: int = 2048) -> int:
        """A number of channels: log-uniform, nearly always a multiple of 8."""
        size = float(2.0 ** self.random.uniform(3.0, math.log2(most)))
        unit = self.random.choice((1, 4, 8, 8, 16, 16, 32, 32))
        return max(1, round(size / unit)) * unit

    def image(self) -> int:
        """The side of an image."""
        return self.random.choice(_IMAGES if self.random.random() < 0.75 else _LARGE_IMAGES)

    def batch(self) -> int:
        """Images at once, mostly one."""
        return self.random.choice((1, 1, 1, 1, 1, 1, 2, 4, 8))

    def epilogue(self, value: Value, biased: bool = True) -> Value:
        """What follows an operator: bias, activation, addition of another tensor."""
        if biased and self.random.random() < 0.8:
            value = self.builder.binary("add", value, self.weight(value.shape[-1]))
        kind = self.random.choice(_ACTIVATIONS)
        if self.random.random() < 0.25:
            value = self.builder.binary("add", value, self.input(*value.shape))
        if kind == "clip":
            return self.builder.unary("clip", value, low=0.0, high=6.0)
        if kind == "leaky_relu":
            return self.builder.unary("leaky_relu", value, alpha=0.1)
        return self.builder.unary(kind, value) if kind else value


def _convolve(draw: _Draw, groups: int, channels_in: int, channels_out: int, kernel: int) -> Value:
    side, batch = draw.image(), draw.batch()
    stride = draw.random.choice((1, 1, 1, 2))
    pad = kernel // 2
    out = (side + 2 * pad - kernel) // stride + 1
    data = draw.input(batch, side, side, channels_in)
    weight = draw.weight(kernel, kernel, channels_in // groups, channels_out)
    result = draw.builder.one(
        "conv",
        [data, weight],
        (batch, out, out, channels_out),
        "float32",
        strides=(stride, stride),
        padding=(pad,) * 4,
        dilation=(1, 1),
        groups=groups,
    )
    return draw.epilogue(result)


def _convolution(draw: _Draw) -> Value:
    kernel = draw.random.choice((1, 1, 1, 1, 3, 3, 3, 3, 5, 7))
    stem = kernel > 1 and draw.random.random() < 0.1
    channels_in = draw.random.choice((1, 3, 4)) if stem else draw.channels(1024)
    return _convolve(draw, 1, channels_in, draw.channels(1024), kernel)


def _depthwise(draw: _Draw) -> Value:
    channels = draw.channels(1024)
    return _convolve(draw, channels, channels, channels, draw.random.choice((3, 3, 3, 5, 7)))


def _grouped(draw: _Draw) -> Value:
    groups, inside = draw.random.choice((2, 4, 8, 16, 32)), draw.random.choice((4, 8, 12, 16, 24, 32))
    outside = inside * draw.random.choice((1, 1, 1, 2))
    return _convolve(draw, groups, groups * inside, groups * outside, 3)


def _dense(draw: _Draw) -> Value:
    rows, depth, columns = draw.random.choice(_LENGTHS), draw.channels(4096), draw.channels(4096)
    shape = (rows, depth) if draw.random.random() < 0.5 else (1, rows, depth)
    data, weight = draw.input(*shape), draw.weight(depth, columns)
    return draw.epilogue(draw.builder.one("dense", [data, weight], (*shape[:-1], columns), "float32"))


def _vector(draw: _Draw) -> Value:
    depth, columns = draw.channels(8192), draw.channels(8192)
    data = draw.input(draw.random.choice((1, 1, 1, 2, 4, 8)), depth)
    result = draw.builder.one(
        "dense", [data, draw.weight(depth, columns)], (data.shape[0], columns), "float32"
    )
    return draw.epilogue(result)


def _batched(draw: _Draw) -> Value:
    heads, length = draw.random.choice((1, 2, 3, 4, 6, 8, 12, 16, 24, 32)), draw.random.choice(_LENGTHS)
    wide, head = draw.random.choice(_LENGTHS), draw.random.choice((16, 24, 32, 40, 48, 64, 80, 96, 128))
    depth, columns = (head, wide) if draw.random.random() < 0.5 else (wide, head)
    left, right = draw.input(heads, length, depth), draw.input(heads, depth, columns)
    result = draw.builder.one("matmul", [left, right], (heads, length, columns), "float32")
    if draw.random.random() < 0.5:
        result = draw.builder.binary("multiply", result, constant(0.125, "float32"))
    return result


def _pooling(draw: _Draw) -> Value:
    kernel = draw.random.choice((2, 2, 3, 3, 5))
    stride, pad = draw.random.choice((1, 2, 2)), kernel // 2 if kernel > 2 else 0
    batch, side, channels = draw.batch(), draw.image(), draw.channels(1024)
    side = max(side, kernel)
    out = (side + 2 * pad - kernel) // stride + 1
    return draw.builder.one(
        "pool",
        [draw.input(batch, side, side, channels)],
        (batch, out, out, channels),
        "float32",
        kind=draw.random.choice(("max", "average")),
        kernel=(kernel, kernel),
        strides=(stride, stride),
        dilation=(1, 1),
        padding=(pad,) * 4,
        count_pad=False,
    )


def _global_mean(draw: _Draw) -> Value:
    batch, side, channels = draw.batch(), draw.random.choice(_IMAGES), draw.channels()
    data = draw.input(batch, side, side, channels)
    shape = (batch, 1, 1, channels)
    return draw.builder.one("mean", [data], shape, "float32", axes=(1, 2), keepdims=True)


def _softmax(draw: _Draw) -> Value:
    heads, rows, length = draw.random.choice((1, 2, 4, 6, 8, 12, 16)), *draw.random.choices(_LENGTHS[1:], k=2)
    return draw.builder.unary("softmax", draw.input(heads, rows, length))


def _layer_norm(draw: _Draw) -> Value:
    rows, width = draw.random.choice(_LENGTHS), draw.channels(2048)
    data = draw.input(1, rows, width)
    if draw.random.random() < 0.4:
        data = draw.builder.binary("add", data, draw.input(1, rows, width))
    norm = draw.builder.unary("layer_norm", data, dims=1, epsilon=1e-5)
    scaled = draw.builder.binary("multiply", norm, draw.weight(width))
    return draw.builder.binary("add", scaled, draw.weight(width))


def _elementwise(draw: _Draw) -> Value:
    shape = draw.random.choice(
        (
            (draw.batch(), draw.image(), draw.image(), draw.channels(1024)),
            (1, draw.random.choice(_LENGTHS), draw.channels()),
        )
    )
    value = draw.builder.binary(
        draw.random.choice(("add", "multiply", "subtract")), draw.input(*shape), draw.input(*shape)
    )
    return draw.epilogue(value)


def _transpose(draw: _Draw) -> Value:
    heads, length, width = draw.random.choice((2, 3, 4, 6, 8, 12, 16)), draw.random.choice(_LENGTHS[1:]), 64
    order = draw.random.choice(((0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2)))
    shape: Shape = (1, length, heads, draw.random.choice((32, width, 80, 96)))
    result = draw.builder.transpose(draw.input(*shape), order)
    return draw.builder.unary("relu", result)


# Kinds with their share: most of a network's time is in the first four.
_KINDS: tuple[tuple[Callable[[_Draw], Value], float], ...] = (
    (_convolution, 0.33),
    (_dense, 0.17),
    (_depthwise, 0.1),
    (_batched, 0.1),
    (_grouped, 0.06),
    (_vector, 0.06),
    (_pooling, 0.05),
    (_softmax, 0.04),
    (_layer_norm, 0.03),
    (_elementwise, 0.03),
    (_transpose, 0.02),
    (_global_mean, 0.01),
)


def draw_operator(generator: random.Random) -> Graph:
    """A graph of one operator and what follows it, small enough for an edge device."""
    kinds, shares = zip(*_KINDS, strict=True)
    while True:
        draw = _Draw(generator)
        output = generator.choices(kinds, shares)[0](draw)
        if _within_bounds(draw.builder, output):
            return Graph(tuple(draw.inputs), draw.builder.nodes, output)


def _within_bounds(builder: Builder, output: Value) -> bool:
    tensors = [output, *(value for node in builder.nodes for value in node.inputs)]
    if max(value.size for value in tensors) > _MOST_ELEMENTS or not output.size:
        return False
    node = builder.nodes[0]
    return node.op not in ("conv", "dense", "matmul") or _work(
        [v.shape for v in node.inputs], node.output
    ) <= (_MOST_WORK)


def _work(shapes: Sequence[Shape], output: Value) -> int:
    """Multiply-adds of a contraction: results times the length of the sum."""
    weight = shapes[1]
    return output.size * (prod(weight[:-1]) if len(weight) != 3 else weight[-2])
