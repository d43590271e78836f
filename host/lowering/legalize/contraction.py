"""Matrix products and convolutions, channels last, weights packed by vector lanes."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.graph import Node, Value
from host.lowering.legalize.elementwise import dtype_of


def packed_dense(stage: Stage, node: Node) -> None:
    """X [..., K] times weight [N' / L, K, L]; block "matmul" computes N' >= N columns."""
    data, weight = stage.tensor(node.inputs[0], "prologue"), stage.argument(node.inputs[1])
    blocks, depth, lanes = node.inputs[1].shape
    k = te.reduce_axis((0, depth), "k")

    def element(indices: Indices) -> Expression:
        *rows, j = indices
        return te.sum(product(data(*rows, k), weight(j // lanes, k, j % lanes), node.output.dtype), axis=[k])

    shape = (*node.output.shape[:-1], blocks * lanes)
    finish(stage, node.output, stage.compute(shape, element, "matmul"))


def matmul(stage: Stage, node: Node) -> None:
    """Two activations, leading dimensions broadcast; block "matmul"."""
    left, right = (stage.tensor(value, "prologue") for value in node.inputs)
    k = te.reduce_axis((0, node.inputs[0].shape[-1]), "k")

    def element(indices: Indices) -> Expression:
        *batch, i, j = indices
        a = left(*_broadcast(node.inputs[0], batch), i, k)
        b = right(*_broadcast(node.inputs[1], batch), k, j)
        return te.sum(a * b, axis=[k])

    finish(stage, node.output, stage.compute(node.output.shape, element, "matmul"))


def _broadcast(value: Value, batch: Indices) -> list[Any]:
    own = value.shape[:-2]
    indices = list(batch)[len(batch) - len(own) :]
    return [0 if size == 1 else index for size, index in zip(own, indices, strict=True)]


def packed_conv(stage: Stage, node: Node) -> None:
    """Dense convolution; weight [O' / L, *K, C, L]; block "conv1d", "conv2d" or "conv3d"."""
    blocks, *kernel, channels, lanes = node.inputs[1].shape
    data, weight = padded_input(stage, node, node.attrs.get("fill", 0)), stage.argument(node.inputs[1])
    axes = [te.reduce_axis((0, size), f"r{d}") for d, size in enumerate(kernel)]
    ic = te.reduce_axis((0, channels), "ic")

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        x = data(n, *window(node, spatial, axes), ic)
        w = weight(oc // lanes, *axes, ic, oc % lanes)
        return te.sum(product(x, w, node.output.dtype), axis=[*axes, ic])

    shape = (*node.output.shape[:-1], blocks * lanes)
    finish(stage, node.output, stage.compute(shape, element, f"conv{len(kernel)}d"))


def grouped_conv(stage: Stage, node: Node) -> None:
    """Grouped convolution; weight [G, Og' / L, *K, Cg, L]; block "grouped_conv2d"."""
    groups, blocks, *kernel, channels, lanes = node.inputs[1].shape
    data, weight = padded_input(stage, node), stage.argument(node.inputs[1])
    axes = [te.reduce_axis((0, size), f"r{d}") for d, size in enumerate(kernel)]
    ic = te.reduce_axis((0, channels), "ic")
    made, kept = blocks * lanes, node.output.shape[-1] // groups

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        group, inner = oc // made, oc % made
        x = data(n, *window(node, spatial, axes), group * channels + ic)
        return te.sum(x * weight(group, inner // lanes, *axes, ic, inner % lanes), axis=[*axes, ic])

    shape = (*node.output.shape[:-1], groups * made)
    result = stage.compute(shape, element, f"grouped_conv{len(kernel)}d")
    if made == kept:
        stage.define_tensor(node.output, result)
    else:
        stage.define(node.output, lambda i: load(result, [*i[:-1], (i[-1] // kept) * made + i[-1] % kept]))


def depthwise_conv(stage: Stage, node: Node) -> None:
    """Each channel by itself; weight [*K, O]; block "depthwise_conv2d"."""
    *kernel, out_channels = node.inputs[1].shape
    multiplier = out_channels // node.inputs[0].shape[-1]
    data, weight = padded_input(stage, node), stage.argument(node.inputs[1])
    axes = [te.reduce_axis((0, size), f"r{d}") for d, size in enumerate(kernel)]

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        channel = oc if multiplier == 1 else oc // multiplier
        return te.sum(data(n, *window(node, spatial, axes), channel) * weight(*axes, oc), axis=axes)

    result = stage.compute(node.output.shape, element, f"depthwise_conv{len(kernel)}d")
    stage.define_tensor(node.output, result)


def window(node: Node, spatial: Indices, axes: Indices) -> list[Any]:
    """Input coordinates of a kernel element at an output position."""
    steps = zip(spatial, axes, node.attrs["strides"], node.attrs["dilation"], strict=True)
    return [
        (o if s == 1 else o * s) + (r if d == 1 else r * d) if not _is_point(r) else (o if s == 1 else o * s)
        for o, r, s, d in steps
    ]


def _is_point(axis: Any) -> bool:
    return int(axis.dom.extent) == 1


def product(left: Expression, right: Expression, dtype: str) -> Expression:
    """A product in the type of the sum: bytes are widened first."""
    factors = [part if dtype_of(part) == dtype else part.astype(dtype) for part in (left, right)]
    return factors[0] * factors[1]


def padded_input(stage: Stage, node: Node, fill: float = 0.0) -> te.Tensor:
    """The input with its padding around it (block "pad_temp"), or as it is if there is none."""
    value, padding = node.inputs[0], node.attrs["padding"]
    half = len(padding) // 2
    before, after = padding[:half], padding[half:]
    if not any(padding):
        return stage.tensor(value, "pad_temp")
    spatial = value.shape[1:-1]
    shape = [b + d + a for b, d, a in zip(before, spatial, after, strict=True)]

    def element(indices: Indices) -> Expression:
        n, *position, c = indices
        source = [i if b == 0 else i - b for i, b in zip(position, before, strict=True)]
        x = stage.scoped(lambda: stage.element(value, [n, *source, c]))
        tests = []
        for i, b, a, d in zip(position, before, after, spatial, strict=True):
            tests += [i >= b] if b else []
            tests += [i < b + d] if a else []
        return tirx.if_then_else(tirx.all(*tests), x, tirx.const(fill, value.dtype))

    return stage.compute((value.shape[0], *shape, value.shape[-1]), element, "pad_temp")


def finish(stage: Stage, value: Value, tensor: te.Tensor) -> None:
    """Padded columns are left out wherever the result is read."""
    if tuple(int(d) for d in tensor.shape) == value.shape:
        stage.define_tensor(value, tensor)
    else:
        stage.define(value, lambda indices: load(tensor, indices))
