"""Pooling with vectors along the rows of an image, and along one axis after the other.

A vector holds elements of neighbouring channels. Where there are hardly any channels, an image of each is
pooled by itself, and a vector holds neighbours of a row. Its borders are then written out first, since a
vector has no conditions, and as none can be read at steps of two, rows are pooled before columns wherever the
steps along a row are longer than one.

    max over a window = max over its columns of the max over its rows

holds for means, too, as each window has the same rows for all of its columns. Of a large window that takes
the sum of its lengths in steps, and not their product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from host.lowering.builder import Builder
from host.lowering.expressions.windows import reached_padding
from host.lowering.graph import Graph, Node, Shape, Value
from host.lowering.passes.sink_reshapes import sink_reshapes
from host.lowering.rebuild import rebuild
from targets import HardwareModel

# Fewer fill no vector of any processor, and shorter rows do neither.
_FEW_CHANNELS, _SHORT_ROW = 4, 8
# Steps of a window, for each that is left, from which a second function pays: it writes and reads the image.
_WORTH = 2


def pool_by_axes(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph, up to the rounding of means, whose pooling has vectors and no large windows.

    Threads of a GPU are no vectors: there, nothing is changed.
    """
    if hardware.gpu is not None:
        return graph

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op == "pool" and _unpooled_axes(node):
            return _merged(builder, node, inputs[0])
        if node.op == "pool" and _by_channels(node):
            return _images(builder, node, inputs[0])
        parts = _parts(node.attrs, False) if node.op == "pool" else []
        if len(parts) < 2:
            return builder.copy(node, inputs)
        return _by_parts(builder, node.attrs, node.output.shape, inputs[0], parts)

    changed = rebuild(graph, rule)
    # What follows another view of an image would be a function of its own.
    views = any(node.op == "pool" and (_unpooled_axes(node) or _by_channels(node)) for node in graph.nodes)
    return sink_reshapes(changed) if views else changed


def _unpooled_axes(node: Node) -> int:
    """How many of the last spatial axes an image of hardly any channels is not pooled along.

    0 where their elements are too few for vectors.
    """
    shape, attrs = node.inputs[0].shape, node.attrs
    rank = len(attrs["kernel"])
    if prod(shape[1 + rank :]) >= _FEW_CHANNELS:
        return 0
    kept = 0
    for axis in reversed(range(1, rank)):
        sides = (attrs["padding"][axis], attrs["padding"][rank + axis])
        if (attrs["kernel"][axis], attrs["strides"][axis], *sides) != (1, 1, 0, 0):
            break
        kept += 1
    return kept if prod(shape[1 + rank - kept :]) >= _SHORT_ROW else 0


def _merged(builder: Builder, node: Node, value: Value) -> Value:
    """The pooling of the first spatial axes, with all elements of the others as channels."""
    attrs, made, shape = node.attrs, node.output.shape, value.shape
    rank = len(attrs["kernel"])
    left = rank - _unpooled_axes(node)
    changed = {name: attrs[name][:left] for name in ("kernel", "strides", "dilation")}
    changed["padding"] = (*attrs["padding"][:left], *attrs["padding"][rank : rank + left])
    data = builder.reshape(value, (*shape[: 1 + left], prod(shape[1 + left :])))
    sizes = (*made[: 1 + left], prod(made[1 + left :]))
    return builder.reshape(builder.one("pool", [data], sizes, value.dtype, **{**attrs, **changed}), made)


def _by_channels(node: Node) -> bool:
    """Whether an image of each channel is pooled. Means whose windows read padding divide by the place."""
    if node.inputs[0].shape[-1] >= _FEW_CHANNELS or node.output.shape[-2] < _SHORT_ROW:
        return False
    return node.attrs["kind"] == "max" or not any(reached_padding(node))


def _images(builder: Builder, node: Node, value: Value) -> Value:
    rank, shape, channels = len(node.attrs["kernel"]), node.output.shape, value.shape[-1]
    images = builder.transpose(value, (0, rank + 1, *range(1, rank + 1)))
    images = builder.reshape(images, (value.shape[0] * channels, *value.shape[1:-1]))
    borders = reached_padding(node)
    least = -inf if value.is_float else int(np.iinfo(value.dtype).min)
    images = builder.pad(images, (0, *borders[:rank]), (0, *borders[rank:]), least)
    attrs = {**node.attrs, "padding": (0,) * len(borders)}
    images = _by_parts(builder, attrs, shape, images, _parts(attrs, True))
    images = builder.reshape(images, (shape[0], channels, *shape[1:-1]))
    return builder.transpose(images, (0, *range(2, rank + 2), 1))


def _parts(attrs: Mapping[str, Any], along_rows: bool) -> list[tuple[int, ...]]:
    """The spatial axes that are pooled together, in order.

    Args:
        attrs: of the pooling.
        along_rows: whether vectors hold neighbours along the last of the axes.
    """
    kernel, strides = attrs["kernel"], attrs["strides"]
    axes = tuple(range(len(kernel)))
    # A window of one element has no steps to save.
    if prod(kernel) > max(_WORTH * sum(size for size in kernel if size > 1), 1):
        return [(axis,) for axis in axes if (kernel[axis], strides[axis]) != (1, 1)]
    if along_rows and strides[-1] > 1 and prod(kernel[:-1]) > 1:
        return [axes[:-1], axes[-1:]]
    return [axes]


def _by_parts(
    builder: Builder, attrs: Mapping[str, Any], made: Shape, value: Value, parts: Sequence[Sequence[int]]
) -> Value:
    """The pooling of some spatial axes after the other.

    Args:
        builder: of the graph.
        attrs: of the pooling.
        made: its output's shape, of which the channels, if there are any, are not read.
        value: what is pooled.
        parts: the axes.
    """
    rank = len(attrs["kernel"])
    for part in parts:
        shape, changed = list(value.shape), dict(attrs)
        for axis in part:
            shape[1 + axis] = made[1 + axis]
        for name in ("kernel", "strides", "dilation"):
            changed[name] = tuple(attrs[name][axis] if axis in part else 1 for axis in range(rank))
        sides = attrs["padding"]
        changed["padding"] = tuple(side if at % rank in part else 0 for at, side in enumerate(sides))
        value = builder.one("pool", [value], tuple(shape), value.dtype, **changed)
    return value
