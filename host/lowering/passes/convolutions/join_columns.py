"""Convolutions with few output channels compute several neighbouring columns of the result at once.

The channels of a result fill the lanes of a vector. One to four of them, as of an image or a map of depths,
leave most lanes empty. S columns of C channels are computed like one column of S * C channels, by a
convolution whose steps are S columns wide. Its kernel is S - 1 columns wider, with zeros where a column
does not read. The result has the same elements in the same order.

An infinite or a NaN input spreads over the S columns of a step, since zero times it is NaN.
"""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild

# A convolution is left as it is unless the new form has fewer vector operations by more than this factor.
_LEAST_GAIN = 1.5


def join_columns(graph: Graph, lanes: int) -> Graph:
    """A graph that gives the same for finite inputs, in which such convolutions compute joined columns.

    The elementwise operations behind a convolution compute joined columns too.

    Args:
        graph: before its weights are packed.
        lanes: elements of a vector.
    """
    readers = graph.consumers()
    returned = set(graph.output_values())
    # New values with joined columns, by the view of them that has the old shape.
    joined: dict[Value, Value] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        columns = columns_of(node, lanes)
        wide = None
        if columns > 1:
            wide = _convolution(builder, node, inputs, columns)
        elif node.spec.is_elementwise and any(value in joined for value in inputs):
            wide = _elementwise(builder, node, inputs, joined)
        if wide is None:
            return builder.copy(node, inputs)
        view = builder.reshape(wide, node.output.shape)
        if len(readers.get(node.output, ())) == 1 and node.output not in returned:
            joined[view] = wide
        return view

    return rebuild(graph, rule)


def columns_of(node: Node, lanes: int) -> int:
    """How many columns of a convolution's result to compute at once; 1 to leave it as it is."""
    if node.op != "conv" or node.output.dtype != "float32" or node.inputs[1].data is None:
        return 1
    if len(node.output.shape) < 3 or node.attrs["groups"] != 1 or 0 in node.output.shape:
        return 1
    *_, width, channels = node.output.shape
    kernel = node.inputs[1].shape[-3]
    plain = node.attrs["strides"][-1] == node.attrs["dilation"][-1] == 1
    if not plain or "taps" in node.attrs or 2 * channels > lanes:
        return 1
    found = [size for size in range(2, lanes // channels + 1) if width % size == 0]
    # Vectors for each column before, and for the columns of a step after.
    columns = max(found, key=lambda size: (size / (kernel + size - 1), -size), default=1)
    return columns if columns * kernel > _LEAST_GAIN * (kernel + columns - 1) else 1


def _convolution(builder: Builder, node: Node, inputs: tuple[Value, ...], columns: int) -> Value | None:
    weight = inputs[1].data
    if weight is None:
        return None
    *outer, kernel, channels_in, channels = weight.shape
    wide = np.zeros((*outer, kernel + columns - 1, channels_in, columns, channels), weight.dtype)
    for column in range(columns):
        wide[..., column : column + kernel, :, column, :] = weight
    wide = wide.reshape(*outer, kernel + columns - 1, channels_in, columns * channels)
    *first, width, _ = node.output.shape
    attrs = {**node.attrs, "strides": (*node.attrs["strides"][:-1], columns)}
    shape = (*first, width // columns, columns * channels)
    return builder.one("conv", [inputs[0], constant(wide)], shape, node.output.dtype, **attrs)


def _elementwise(
    builder: Builder, node: Node, inputs: tuple[Value, ...], joined: dict[Value, Value]
) -> Value | None:
    """The operation on joined columns, where every input is such, a number, or a constant of the channels."""
    shape = next(joined[value].shape for value in inputs if value in joined)
    channels = node.output.shape[-1]
    sources = []
    for value in inputs:
        if value in joined and value.shape == node.output.shape and joined[value].shape == shape:
            sources.append(joined[value])
        elif value.size == 1:
            sources.append(builder.reshape(value, ()))
        elif value.data is not None and value.size == channels == value.shape[-1]:
            sources.append(constant(np.tile(value.data.reshape(-1), shape[-1] // channels)))
        else:
            return None
    return builder.one(node.op, sources, shape, node.output.dtype, **node.attrs)
