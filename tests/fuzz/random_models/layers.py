"""Layers of networks: products, convolutions, pooling, normalisation, images, recurrence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.random_models.draw import SIZES, Draw, Operator, Value


def _matmul(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.rank > 0)
    columns, depth = d.pick(*SIZES), x.shape[-1]
    if x.rank == 2 and d.rng.random() < 0.5:
        across, along = d.pick(0, 1), d.pick(0, 1)
        inner, outer = (x.shape[0], x.shape[1]) if across else (x.shape[1], x.shape[0])
        shape = (columns, inner) if along else (inner, columns)
        bias = d.weight(*d.pick((columns,), (1, columns), (outer, 1), (outer, columns)), like=x)
        d.add("Gemm", [x.name, d.weight(*shape, like=x), bias], transA=across, transB=along, alpha=0.5)
        return
    batch = x.shape[:-2] if x.rank > 2 and d.pick(True, False) else ()
    d.add("MatMul", [x.name, d.weight(*batch, depth, columns, like=x)])


def _product(d: Draw, x: Value) -> None:
    """Of a value with itself transposed, as in attention."""
    d.need(x.dtype == "float32" and x.rank > 1)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    (turned,) = d.add("Transpose", [x.name], perm=perm)
    scale = d.constant(np.array(1 / math.sqrt(x.shape[-1]), x.dtype))
    (scores,) = d.add("MatMul", [x.name, turned])
    d.add("Mul", [scores, scale])


def _convolution(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.rank in (3, 4, 5))
    channels, image = x.shape[1], x.shape[2:]
    groups = d.pick(1, 1, channels, *(size for size in (2, 3, 4) if channels % size == 0))
    outputs = groups * d.pick(1, 1, 2, 3, 5, 8)
    kernel = [d.rng.randint(1, min(5, size + 2)) for size in image]
    dilations = [d.pick(1, 1, 1, 2, 3) for _ in image]
    strides = [d.pick(1, 1, 1, 2, 3) for _ in image]
    pads = [d.rng.randint(0, k) for k in (*kernel, *kernel)]
    padded = [size + pads[i] + pads[i + len(image)] for i, size in enumerate(image)]
    d.need(all(p > q * (k - 1) for p, q, k in zip(padded, dilations, kernel, strict=True)))
    attributes = {"dilations": dilations, "strides": strides, "pads": pads, "group": groups}
    _add_filter(d, x, "Conv", (outputs, channels // groups, *kernel), outputs, attributes)


def _transposed(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.rank in (3, 4))
    channels, image = x.shape[1], x.shape[2:]
    groups = d.pick(1, 1, channels)
    outputs = d.pick(1, 2, 3, 5)
    kernel = [d.rng.randint(1, 4) for _ in image]
    strides = [d.pick(1, 2, 2, 3) for _ in image]
    pads = [d.rng.randint(0, k - 1) for k in kernel] * 2
    more = [d.rng.randrange(s) for s in strides]
    attributes = {"strides": strides, "pads": pads, "output_padding": more, "group": groups}
    _add_filter(d, x, "ConvTranspose", (channels, outputs, *kernel), outputs * groups, attributes)


def _add_filter(
    d: Draw, x: Value, op: str, shape: tuple[int, ...], outputs: int, attributes: dict[str, Any]
) -> None:
    """A convolution of either kind by a filter of a shape, with a bias for its output channels or without."""
    weight = d.weight(*shape, like=x)
    bias = d.pick([], [d.weight(outputs, like=x)])
    d.add(op, [x.name, weight, *bias], kernel_shape=list(shape[2:]), **attributes)


def _pool(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.rank in (3, 4, 5))
    op = d.pick("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool")
    if op.startswith("Global"):
        d.add(op, [x.name])
        return
    kernel = [d.rng.randint(1, min(4, size)) for size in x.shape[2:]]
    strides = [d.pick(1, 1, 2, 3) for _ in kernel]
    pads = [d.rng.randint(0, k - 1) for k in (*kernel, *kernel)]
    kinds: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if op != "LpPool":
        kinds["ceil_mode"] = d.pick(0, 0, 1)
    if op == "AveragePool":
        kinds["count_include_pad"] = d.pick(0, 1)
    d.add(op, [x.name], **kinds)


def _channels(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.rank in (3, 4))
    channels = x.shape[1]
    positive = d.constant(d.numbers.uniform(0.5, 1.5, channels).astype(x.dtype))
    bias = d.weight(channels, like=x)
    op = d.pick("BatchNormalization", "InstanceNormalization", "LRN", "PRelu")
    if op == "BatchNormalization":
        mean = d.weight(channels, like=x)
        d.add(op, [x.name, positive, bias, mean, positive])
    elif op == "InstanceNormalization":
        d.need(math.prod(x.shape[2:]) > 3)
        d.add(op, [x.name, positive, bias])
    elif op == "LRN":
        d.add(op, [x.name], size=d.pick(1, 3, 5))
    else:
        d.add(op, [x.name, d.weight(channels, *[1] * (x.rank - 2), like=x)])


def _image(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.rank == 4)
    _, channels, height, width = x.shape
    op = d.pick("DepthToSpace", "SpaceToDepth", "Resize", "Resize")
    if op == "DepthToSpace":
        d.need(channels % 4 == 0)
        d.add(op, [x.name], blocksize=2, mode=d.pick("DCR", "CRD"))
    elif op == "SpaceToDepth":
        block = d.pick(2, 3)
        d.need(height % block == width % block == 0)
        d.add(op, [x.name], blocksize=block)
    else:
        sizes = d.constant([*x.shape[:2], *(d.pick(*SIZES[2:]) for _ in "hw")])
        mode = d.pick("nearest", "linear", "cubic")
        # Where a position lies in the middle between two, its last digit decides.
        where = "asymmetric" if mode == "nearest" else d.pick("half_pixel", "align_corners", "asymmetric")
        d.add(
            "Resize",
            [x.name, "", "", sizes],
            mode=mode,
            coordinate_transformation_mode=where,
            nearest_mode="floor",
        )


def _recurrent(d: Draw, x: Value) -> None:
    d.need(x.dtype == "float32" and x.rank == 3)
    op, hidden = d.pick("LSTM", "GRU", "RNN"), d.pick(1, 3, 5, 8, 16, 17)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = d.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    weights = [d.weight(ways, gates * hidden, size, like=x) for size in (x.shape[2], hidden)]
    bias = d.pick([], [d.weight(ways, 2 * gates * hidden, like=x)])
    kinds = {"linear_before_reset": d.pick(0, 1)} if op == "GRU" else {}
    d.add(op, [x.name, *weights, *bias], 2, hidden_size=hidden, direction=direction, **kinds)


LAYERS: tuple[Operator, ...] = (
    _matmul,
    _matmul,
    _product,
    _convolution,
    _convolution,
    _convolution,
    _transposed,
    _pool,
    _pool,
    _channels,
    _image,
    _image,
    _recurrent,
)
