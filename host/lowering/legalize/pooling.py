"""Maximum and average pooling, channels last."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import te, tirx

from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.graph import Node
from host.lowering.legalize.contraction import padded_input, window


def pool(stage: Stage, node: Node) -> None:
    """Block "pad_temp" where the window leaves the input, then "max" or "sum"."""
    value, kernel = node.inputs[0], node.attrs["kernel"]
    reach = Node("pool", node.inputs, {**node.attrs, "padding": _reached_padding(node)}, node.outputs)
    maximum = node.attrs["kind"] == "max"
    data = padded_input(stage, reach, _lowest(value.dtype) if maximum else 0)
    axes = [te.reduce_axis((0, size), f"r{d}") for d, size in enumerate(kernel)]
    combine = te.max if maximum else te.sum

    def element(indices: Indices) -> Expression:
        n, *spatial, c = indices
        return combine(data(n, *window(node, spatial, axes), c), axis=axes)

    result = stage.compute(node.output.shape, element, "max" if maximum else "sum")
    if maximum:
        stage.define_tensor(node.output, result)
    else:
        stage.define(node.output, lambda i: load(result, i) * _share(node, i[1:-1]))


def _lowest(dtype: str) -> Any:
    if dtype.startswith(("float", "bfloat")):
        return float("-inf")
    return tirx.min_value(dtype).value


def _reached_padding(node: Node) -> tuple[int, ...]:
    """Padding so that the last window is inside; rounding up the output size can ask for more than given."""
    before, after = [], []
    spatial = node.inputs[0].shape[1:-1]
    for d, size in enumerate(spatial):
        last = (node.output.shape[1 + d] - 1) * node.attrs["strides"][d]
        reach = last + (node.attrs["kernel"][d] - 1) * node.attrs["dilation"][d] + 1
        before.append(node.attrs["padding"][d])
        after.append(max(reach - size - before[-1], 0))
    return (*before, *after)


def _share(node: Node, position: Indices) -> Expression:
    """One over the number of elements that an average counts at an output position."""
    attrs, dtype = node.attrs, node.output.dtype
    kernel, padding = attrs["kernel"], attrs["padding"]
    spatial = node.inputs[0].shape[1:-1]
    reached = _reached_padding(node)
    if not any(reached) or (attrs["count_pad"] and reached <= padding):
        return tirx.const(1.0 / prod(kernel), dtype)
    count = tirx.const(1, "int32")
    for d, size in enumerate(spatial):
        before, after = padding[d], padding[d + len(spatial)]
        low, high = (-before, size + after) if attrs["count_pad"] else (0, size)
        count = count * _inside(position[d], d, attrs, low, high)
    return tirx.const(1.0, dtype) / tirx.Cast(dtype, tirx.max(count, tirx.const(1, "int32")))


def _inside(index: Any, d: int, attrs: dict[str, Any], low: int, high: int) -> Expression:
    """How many window elements along one dimension lie in [low, high)."""
    start = index * attrs["strides"][d] - attrs["padding"][d]
    kernel, dilation = attrs["kernel"][d], attrs["dilation"][d]
    if dilation == 1:
        return tirx.min(start + kernel, high) - tirx.max(start, low)
    first = tirx.max((low - start + dilation - 1) // dilation, 0)
    last = tirx.min((high - start + dilation - 1) // dilation, kernel)
    return last - first
