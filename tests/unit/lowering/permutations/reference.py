"""Graphs of the compiler on NumPy arrays, and random graphs that mix channels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.ops import known_operators


def evaluate(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a graph of the operations that `random_graph` draws."""
    known = dict(zip(graph.inputs, inputs, strict=True))

    def array(value: Value) -> np.ndarray:
        return known[value] if value.data is None else value.data

    for node in graph.nodes:
        made = _run(node, [array(value) for value in node.inputs])
        assert made.shape == node.output.shape
        known[node.output] = made
    return [array(value) for value in graph.output_values()]


def _run(node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    if node.op == "conv":
        return _convolution(node, *inputs)
    if node.op == "pool":
        image = torch.nn.functional.max_pool2d(_first(inputs[0]), node.attrs["kernel"], node.attrs["strides"])
        return image.numpy().transpose(0, 2, 3, 1)
    if node.op == "dense":
        return inputs[0] @ inputs[1]
    assert node.spec.fold is not None
    output = node.output
    return np.asarray(node.spec.fold(inputs, node.attrs, output.shape, output.dtype))


def _first(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(image.transpose(0, 3, 1, 2)))


def _convolution(node: Node, image: np.ndarray, weight: np.ndarray) -> np.ndarray:
    kernel = torch.from_numpy(np.ascontiguousarray(weight.transpose(3, 2, 0, 1)))
    attrs = node.attrs
    made = torch.nn.functional.conv2d(
        _first(image),
        kernel,
        None,
        attrs["strides"],
        attrs["padding"][:2],
        attrs["dilation"],
        attrs["groups"],
    )
    return made.numpy().transpose(0, 2, 3, 1)


class RandomGraph:
    """Draws a graph of images, channels last, as convolutional networks have them.

    Weights and images are small integers, so that sums are exact in any order.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.builder = Builder(known_operators())
        image = Value((1, 4, 4, 8), "float32", name="image")
        self.inputs = (image,)
        self.values = [image, self.weighted(image, 12, 1), self.weighted(image, 8, 1)]

    def drawn(self) -> Graph:
        """The graph; its outputs are what nothing reads."""
        for _ in range(self.rng.randint(4, 14)):
            value = self.rng.choice(self.values[-4:])
            made = self.rng.choice(_DRAWN)(self, value)
            if made is not None and made.size < 1 << 13:
                self.values.append(made)
        read = {value for node in self.builder.nodes for value in node.inputs}
        outputs = tuple(node.output for node in self.builder.nodes if node.output not in read)
        return self.builder.graph(self.inputs, outputs)

    def array(self, *shape: int) -> np.ndarray:
        """Whole numbers from -2 to 2."""
        return self.numbers.integers(-2, 3, shape).astype("float32")

    def weighted(self, value: Value, channels: int, groups: int, kernel: int = 1) -> Value:
        """A convolution that keeps the size of the image."""
        weight = constant(self.array(kernel, kernel, value.shape[-1] // groups, channels))
        shape = (*value.shape[:-1], channels)
        attrs: dict[str, Any] = {"strides": (1, 1), "dilation": (1, 1), "groups": groups}
        return self.builder.one(
            "conv", [value, weight], shape, "float32", padding=(kernel // 2,) * 4, **attrs
        )


def _shuffle(d: RandomGraph, x: Value) -> Value | None:
    """Groups and their members exchanged: of the channels, or now and then of the rows."""
    axis = d.rng.choice((-1, -1, -1, -1, 1)) % len(x.shape)
    size = x.shape[axis]
    splits = [n for n in range(2, size) if size % n == 0]
    if not splits:
        return None
    groups = d.rng.choice(splits)
    apart = d.builder.reshape(x, (*x.shape[:axis], groups, size // groups, *x.shape[axis + 1 :]))
    axes = list(range(len(apart.shape)))
    axes[axis], axes[axis + 1] = axes[axis + 1], axes[axis]
    return d.builder.reshape(d.builder.transpose(apart, axes), x.shape)


def _stack(d: RandomGraph, x: Value) -> Value | None:
    other = d.rng.choice([one for one in d.values if one.shape == x.shape])
    parts = [d.builder.reshape(one, (*x.shape, 1)) for one in (x, other)]
    stacked = d.builder.one("concat", parts, (*x.shape, 2), "float32", axis=len(x.shape))
    return d.builder.reshape(stacked, (*x.shape[:-1], 2 * x.shape[-1]))


def _slice(d: RandomGraph, x: Value) -> Value | None:
    axis = d.rng.choice((-1, -1, -1, 1)) % len(x.shape)
    begin, strides, shape = [0] * len(x.shape), [1] * len(x.shape), list(x.shape)
    first, end = sorted(d.rng.sample(range(shape[axis] + 1), 2))
    if axis == 1 and len(x.shape) == 4 and (first, end) != (0, shape[axis]):
        return None  # images keep their size, so that they can be joined
    strides[axis] = d.rng.choice((1, 1, 1, 2, -1)) if end - first > 1 else 1
    begin[axis] = end - 1 if strides[axis] < 0 else first
    shape[axis] = -(-(end - first) // abs(strides[axis]))
    return d.builder.slice(x, begin, shape, strides)


def _join(d: RandomGraph, x: Value) -> Value:
    others = [one for one in d.values if one.shape[:-1] == x.shape[:-1]]
    parts = [x, *(d.rng.choice(others) for _ in range(d.rng.randint(1, 2)))]
    d.rng.shuffle(parts)
    shape = (*x.shape[:-1], sum(part.shape[-1] for part in parts))
    return d.builder.one("concat", parts, shape, "float32", axis=len(shape) - 1)


def _convolve(d: RandomGraph, x: Value) -> Value | None:
    if len(x.shape) == 2:
        weight = constant(d.array(x.shape[-1], 8))
        return d.builder.one("dense", [x, weight], (x.shape[0], 8), "float32")
    groups = d.rng.choice([n for n in range(1, 5) if x.shape[-1] % n == 0])
    return d.weighted(x, groups * d.rng.randint(1, 6), groups, d.rng.choice((1, 3)))


def _each(d: RandomGraph, x: Value) -> Value | None:
    if len(x.shape) != 4:
        return None
    channels = x.shape[-1]
    return d.weighted(x, channels * d.rng.choice((1, 1, 2)), channels, 3)


def _by_constant(d: RandomGraph, x: Value) -> Value:
    shape = d.rng.choice(((x.shape[-1],), (), (1,) * (len(x.shape) - 1) + (x.shape[-1],)))
    return d.builder.binary(d.rng.choice(("add", "multiply")), x, constant(d.array(*shape)))


def _of_two(d: RandomGraph, x: Value) -> Value:
    other = d.rng.choice([one for one in d.values if one.shape == x.shape])
    return d.builder.binary(d.rng.choice(("add", "subtract")), x, other)


def _gate(d: RandomGraph, x: Value) -> Value:
    """Each channel times its mean (a power of two of positions: exact)."""
    axes = tuple(range(1, len(x.shape) - 1)) or (0,)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    mean = d.builder.one("max", [x], shape, "float32", axes=axes, keepdims=True)
    if d.rng.random() < 0.5:
        mean = d.weighted(mean, x.shape[-1], 1) if len(x.shape) == 4 else mean
    return d.builder.binary("add", x, mean)


def _pool(d: RandomGraph, x: Value) -> Value | None:
    if len(x.shape) != 4:
        return None
    padded = d.builder.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), 0.0)
    attrs = {"kind": "max", "kernel": (3, 3), "strides": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
    return d.builder.one("pool", [padded], x.shape, "float32", count_pad=False, **attrs)


def _view(d: RandomGraph, x: Value) -> Value:
    shape = (1, 4, 4, x.shape[-1]) if len(x.shape) == 2 else (16, x.shape[-1])
    return d.builder.reshape(x, shape)


_DRAWN = (
    *(_shuffle, _shuffle, _shuffle, _stack, _slice, _slice, _join, _join, _convolve, _convolve),
    *(_each, _by_constant, _of_two, _gate, _pool, _view),
    lambda d, x: d.builder.unary("relu", x),
)
