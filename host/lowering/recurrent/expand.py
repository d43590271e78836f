"""Recurrent layers as a product of all steps' inputs and a loop over the steps, or unrolled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Shape, Value, constant
from host.lowering.passes.pack_weights import lanes_for
from host.lowering.rebuild import rebuild
from host.lowering.recurrent.layer import OPERATION, Layer, layer_of
from host.lowering.recurrent.loop import LoopShape, last_states
from host.lowering.recurrent.unrolled import unrolled
from targets import HardwareModel


def expand_recurrent(graph: Graph, hardware: HardwareModel, loops: bool) -> Graph:
    """An equal graph without "recurrent" nodes.

    Args:
        graph: as read.
        hardware: the processor, whose vectors decide how weights are packed.
        loops: whether a function may loop over steps. Layers of weights that are computed, and of other types
            than fp32, are unrolled even so.

    Raises:
        LoweringError: a sequence is too long to be unrolled.
    """

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op != OPERATION:
            return builder.copy(node, inputs)
        layer = layer_of(builder, node, inputs)
        fits = layer.is_constant and node.output.dtype == "float32"
        if loops and fits:
            return _looped(builder, layer, hardware)
        return unrolled(builder, layer, hardware.gpu is not None)

    return rebuild(graph, rule)


def _looped(builder: Builder, given: Layer, hardware: HardwareModel) -> tuple[Value, ...]:
    """The states of all steps (T, N, H), and each state after the last step (N, H), from one function."""
    width = lanes_for(given.hidden, hardware.lanes, hardware.halves_vectors)
    layer = _filled_up(builder, given, -given.hidden % width)
    cell, hidden, batch, steps = layer.cell, layer.hidden, layer.batch, layer.steps
    shape = LoopShape(steps, batch, hidden // width, width, layer.lengths is not None)
    packed = layer.recurrent.data
    assert packed is not None
    # [H, G, B, L] as [B, H, G, L]: what one block of hidden units multiplies is one stream.
    packed = np.moveaxis(packed.reshape(hidden, cell.gates, shape.blocks, width), 2, 0)
    products = builder.reshape(layer.given(builder), (steps, batch, cell.gates, shape.blocks, width))
    weights = [constant(packed[:, :, phase.gates[0] : phase.gates[-1] + 1]) for phase in cell.phases]
    known = layer.vectors(builder)
    vectors = [builder.reshape(known[name], (shape.blocks, width)) for name in cell.vectors]
    first = layer.initial(builder)
    outputs: list[tuple[Shape, str]] = [((steps, batch, hidden), "float32")]
    outputs += [((batch, hidden), "float32") for _ in last_states(cell, shape)]
    inputs = [products, *weights, *vectors, *(first[name] for name in cell.states), *_missing(builder, layer)]
    reverse = layer.order[0] > layer.order[-1]
    attrs = {"cell": cell, "shape": shape, "reverse": reverse}
    sequence, *rest = builder.emit("recurrent_loop", inputs, attrs, outputs)
    if not shape.has_lengths:
        end = builder.slice(sequence, (layer.order[-1], 0, 0), (1, batch, hidden), (1, 1, 1))
        rest = [builder.reshape(end, (batch, hidden)), *rest]
    found = [sequence, *rest]
    kept = given.hidden
    return tuple(
        builder.slice(value, (0,) * len(value.shape), (*value.shape[:-1], kept), (1,) * len(value.shape))
        for value in found
    )


def _missing(builder: Builder, layer: Layer) -> list[Value]:
    """The steps that the sequences lack (N, 1) and the least of them (1), int32; nothing if all are whole."""
    if layer.lengths is None:
        return []
    none, whole = (constant(np.array(count, layer.lengths.dtype)) for count in (0, layer.steps))
    # Lengths that no sequence has are bounded first: their difference may be beyond the range of the type.
    lengths = builder.binary("minimum", builder.binary("maximum", layer.lengths, none), whole)
    missing = builder.cast(builder.binary("subtract", whole, lengths), "int32")
    least = builder.one("min", [missing], (1, 1), "int32", axes=(0,), keepdims=True)
    return [missing, builder.reshape(least, (1,))]


def _filled_up(builder: Builder, layer: Layer, missing: int) -> Layer:
    """The layer with hidden units more that no other unit reads, so that vectors are full."""
    if not missing:
        return layer
    gates, hidden = layer.cell.gates, layer.hidden

    def grouped(value: Value | None, groups: int, axis: int) -> Value | None:
        """Zeros behind every group of `hidden` elements along an axis."""
        if value is None or value.data is None:
            return None
        data = np.moveaxis(value.data, axis, -1)
        data = data.reshape(*data.shape[:-1], groups, hidden)
        data = np.pad(data, [(0, 0)] * (data.ndim - 1) + [(0, missing)])
        return constant(np.moveaxis(data.reshape(*data.shape[:-2], -1), -1, axis))

    weight, columns = grouped(layer.weight, gates, 0), grouped(layer.recurrent, gates, 1)
    recurrent = grouped(columns, 1, 0)
    assert weight is not None and recurrent is not None
    return replace(
        layer,
        hidden=hidden + missing,
        weight=weight,
        recurrent=recurrent,
        bias=grouped(layer.bias, 2 * gates, 0),
        states={name: builder.pad(value, (0, 0), (0, missing), 0.0) for name, value in layer.states.items()},
        peepholes=grouped(layer.peepholes, 3, 0),
    )
