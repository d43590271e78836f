"""Tensors one behind the other; attribute `axis`."""

from __future__ import annotations

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.passes.permutations.channels import Channels
from host.lowering.passes.permutations.sink_permutations import PermutationWalk
from host.lowering.passes.sink_transposes import Ordered, TransposeWalk, common_order
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec


def _concat(builder: Builder, call: OperatorCall) -> Value:
    parts: list[Value] = list(call.arguments[0])
    axis = normalise_axis(int(call.attrs.axis or 0), len(call.shape))
    parts = [part for part in parts if part.shape[axis] != 0] or [parts[0]]
    if len(parts) == 1:
        return parts[0]
    return builder.one("concat", parts, call.shape, call.dtype, axis=axis)


def _stack(builder: Builder, call: OperatorCall) -> Value:
    axis = normalise_axis(int(call.attrs.axis or 0), len(call.shape))
    parts = []
    for part in call.arguments[0]:
        parts.append(builder.reshape(part, (*part.shape[:axis], 1, *part.shape[axis:])))
    if len(parts) == 1:
        return parts[0]
    return builder.one("concat", parts, call.shape, call.dtype, axis=axis)


def _write(stage: Stage, node: Node) -> None:
    """Chooses the part that an index falls into."""
    axis = node.attrs["axis"]

    def element(indices: Indices) -> Expression:
        ends, end = [], 0
        for part in node.inputs:
            end += part.shape[axis]
            ends.append(end)

        def read(which: int) -> Expression:
            start = ends[which - 1] if which else 0
            source = [i - start if a == axis and start else i for a, i in enumerate(indices)]
            return stage.scoped(lambda: stage.element(node.inputs[which], source))

        result = read(len(node.inputs) - 1)
        for which in reversed(range(len(node.inputs) - 1)):
            result = tirx.if_then_else(indices[axis] < ends[which], read(which), result)
        return result

    stage.define(node.output, element)


def _sink_transpose(walk: TransposeWalk, node: Node) -> Ordered | None:
    order = common_order(walk, node)
    if order is None:
        return None
    inputs = [walk.in_order(value, order) for value in node.inputs]
    return walk.emit(node, inputs, order, axis=order[node.attrs["axis"]])


def _sink_permutation(walk: PermutationWalk, node: Node) -> Channels | None:
    """Joined channels are joined places; along other dimensions, what has its channels in one order."""
    if node.attrs["axis"] == len(node.output.shape) - 1:
        return Channels(tuple(place for value in node.inputs for place in walk.channels(value).places))
    if not any(walk.is_moved(value) for value in node.inputs):
        return None
    tensor, places = walk.in_any_order(node.inputs[0])
    others = [walk.in_order(value, places) for value in node.inputs[1:]]
    return walk.emit(node, [tensor, *others], places)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "concat",
        read={"concat": _concat, "stack": _stack},
        write=_write,
        fold=lambda inputs, attrs, shape, dtype: np.concatenate(inputs, axis=attrs["axis"]),
        fusion=Fusion(computes=lambda reader, node: True),
        sink_transpose=_sink_transpose,
        sink_permutation=_sink_permutation,
    ),
)
