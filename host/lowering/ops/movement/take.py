"""Elements by number along an axis; attributes `axis` and `mode` (of numbers out of range)."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, Shape, Value, normalise_axis
from host.lowering.passes.sink_transposes import Ordered, TransposeWalk
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value | None:
    data, indices = call.arguments[0], call.arguments[1]
    if not isinstance(indices, Value):
        return None
    axis = call.attrs.axis
    if axis is None:
        data, axis = builder.reshape(data, (-1,)), 0
    return builder.one(
        "take",
        [data, indices],
        call.shape,
        call.dtype,
        axis=normalise_axis(int(axis), len(data.shape)),
        mode=str(call.attrs.mode),
    )


def _write(stage: Stage, node: Node) -> None:
    """Reads the elements at the positions in the index tensor."""
    data, positions = node.inputs
    axis, rank, size = node.attrs["axis"], len(node.inputs[1].shape), node.inputs[0].shape[node.attrs["axis"]]

    def element(indices: Indices) -> Expression:
        index = tirx.Cast("int32", stage.element(positions, indices[axis : axis + rank]))
        if node.attrs["mode"] == "clip":
            index = tirx.max(tirx.min(index, size - 1), 0)
        elif node.attrs["mode"] == "wrap":
            index = tirx.floormod(index, size)
        return stage.element(data, [*indices[:axis], index, *indices[axis + rank :]])

    stage.define(node.output, element)


def _fold(inputs: Any, attrs: Any, shape: Shape, dtype: str) -> Any:
    data, indices = inputs
    axis, size = attrs["axis"], data.shape[attrs["axis"]]
    wrapped = np.where(indices < 0, indices + size, indices)
    return np.take(data, np.clip(wrapped, 0, size - 1), axis=axis)


def _sink_transpose(walk: TransposeWalk, node: Node) -> Ordered | None:
    ordered, positions = walk.get(node.inputs[0]), node.inputs[1]
    if ordered.is_plain or len(positions.shape) != 1:
        return None
    axis = ordered.order[node.attrs["axis"]]
    return walk.emit(node, [ordered.tensor, walk.written_out(positions)], ordered.order, axis=axis)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "take",
        read={"take": _read},
        write=_write,
        fold=_fold,
        fusion=Fusion(inlined=True),
        sink_transpose=_sink_transpose,
    ),
    # TVM writes it; here it is only folded.
    OpSpec("relax.index_tensor", fold=lambda inputs, attrs, shape, dtype: inputs[0][tuple(inputs[1:])]),
)
