"""Dimensions in another order; attribute `axes`."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Stage
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.passes.sink_transposes import Ordered, TransposeWalk, inverse
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value:
    value = call.value(0)
    rank = len(value.shape)
    axes = call.attrs.axes
    order = list(reversed(range(rank))) if axes is None else [normalise_axis(int(a), rank) for a in axes]
    return builder.transpose(value, order)


def _write(stage: Stage, node: Node) -> None:
    """Reads with the indices in the other order."""
    back = inverse(node.attrs["axes"])
    stage.define(node.output, lambda i: stage.element(node.inputs[0], [i[axis] for axis in back]))


def _sink_transpose(walk: TransposeWalk, node: Node) -> Ordered:
    ordered = walk.get(node.inputs[0])
    return Ordered(ordered.tensor, tuple(ordered.order[axis] for axis in node.attrs["axes"]))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "transpose",
        read={"permute_dims": _read},
        write=_write,
        fold=lambda inputs, attrs, shape, dtype: np.transpose(inputs[0], attrs["axes"]),
        fusion=Fusion(inlined=True, epilogue=True, computes=lambda reader, node: True),
        sink_transpose=_sink_transpose,
    ),
)
