"""Maximum and average pooling; attributes `kind`, `kernel`, `strides`, `dilation`, `padding`, `count_pad`.

Images are (N, ..., C), with as many spatial axes as the kernel has, or (N, ...) where each has one channel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import te, tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.expressions.windows import padded_input, reached_padding, window
from host.lowering.graph import Node, Value
from host.lowering.ops.image_layout import SPATIAL, channels_last, integers, order, plain
from host.lowering.passes.integers.pool_bytes import pool_bytes
from host.lowering.passes.permutations.sink_permutations import channel_by_channel
from host.lowering.passes.pool_by_axes import pool_by_axes
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, GraphPass, OpSpec, Phase, Reader
from host.lowering.types import numeric_type


def _read_as(kind: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value | None:
        attrs, data = call.attrs, call.value(0)
        layout = str(attrs.layout)
        if not plain(layout, str(attrs.out_layout)) or str(attrs.out_layout) != layout:
            return None
        last = channels_last(layout)
        result = builder.one(
            "pool",
            [builder.transpose(data, order(layout, last))],
            tuple(call.shape[axis] for axis in order(layout, last)),
            call.dtype,
            kind=kind,
            kernel=integers(attrs.pool_size),
            strides=integers(attrs.strides),
            dilation=integers(attrs.dilation),
            padding=integers(attrs.padding),
            count_pad=bool(attrs.count_include_pad),
        )
        return builder.transpose(result, order(last, layout))

    return read


def _adaptive_average(builder: Builder, call: OperatorCall) -> Value | None:
    data, layout = call.value(0), str(call.attrs.layout)
    axes = [layout.index(letter) for letter in layout if letter in SPATIAL]
    if any(call.shape[axis] != 1 for axis in axes):
        return None
    return builder.one("mean", [data], call.shape, call.dtype, axes=tuple(axes), keepdims=True)


def _write(stage: Stage, node: Node) -> None:
    """Block "pad_temp" where the window leaves the input, then "max" or "sum"."""
    value, kernel = node.inputs[0], node.attrs["kernel"]
    reach = dataclasses.replace(node, attrs={**node.attrs, "padding": reached_padding(node)})
    maximum = node.attrs["kind"] == "max"
    data = padded_input(stage, reach, _lowest(value.dtype) if maximum else 0)
    axes = [te.reduce_axis((0, size), f"r{d}") for d, size in enumerate(kernel)]
    combine = te.max if maximum else te.sum

    def element(indices: Indices) -> Expression:
        spatial, channel = _apart(node, indices)
        return combine(data(indices[0], *window(node, spatial, axes), *channel), axis=axes)

    result = stage.compute(node.output.shape, element, "max" if maximum else "sum")
    if maximum:
        stage.define_tensor(node.output, result)
    else:
        stage.define(node.output, lambda i: load(result, i) * _share(node, _apart(node, i)[0]))


def _apart(node: Node, numbers: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Indices or extents of the spatial axes, and of the channel if there is one."""
    last = 1 + len(node.attrs["kernel"])
    return numbers[1:last], numbers[last:]


def _lowest(dtype: str) -> Any:
    if numeric_type(dtype).is_float:
        return float("-inf")
    return tirx.min_value(dtype).value


def _share(node: Node, position: Indices) -> Expression:
    """One over the number of elements that an average counts at an output position."""
    attrs, dtype = node.attrs, node.output.dtype
    kernel, padding = attrs["kernel"], attrs["padding"]
    spatial, _ = _apart(node, node.inputs[0].shape)
    reached = reached_padding(node)
    if not any(reached) or (
        attrs["count_pad"] and all(one <= given for one, given in zip(reached, padding, strict=True))
    ):
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


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "pool",
        read={
            **{f"nn.max_pool{n}d": _read_as("max") for n in (1, 2, 3)},
            **{f"nn.avg_pool{n}d": _read_as("average") for n in (1, 2, 3)},
        },
        write=_write,
        passes=(
            GraphPass(Phase.SIMPLIFIED, lambda graph, hardware: pool_bytes(graph)),
            GraphPass(Phase.SIMPLIFIED, pool_by_axes, one_length=True),
        ),
        fusion=Fusion(anchor=True),
        sink_permutation=channel_by_channel,
    ),
    OpSpec("adaptive_average", read={f"nn.adaptive_avg_pool{n}d": _adaptive_average for n in (1, 2, 3)}),
)
