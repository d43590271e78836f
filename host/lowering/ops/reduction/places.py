"""Where the largest or smallest element along an axis is; attributes `axis` and `keepdims`.

Of equal elements it is the first, and NaN leads, as NumPy has it. TVM's own function begins with the smallest
finite number: for a row of minus infinities, or of bytes of zero, it answers -1.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Stage, load
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec, Reader
from host.lowering.types import numeric_type

# A place and the value there.
_Pair = tuple[Expression, Expression]


def _read_as(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value | None:
        value, axis, keep = call.value(0), call.attrs.axis, bool(call.attrs.keepdims)
        if value.dtype == "bool" or (axis is None and keep):
            return None
        if axis is None:
            value, axis = builder.reshape(value, (-1,)), 0
        axis = normalise_axis(int(axis), len(value.shape))
        return builder.one(name, [value], call.shape, call.dtype, axis=axis, keepdims=keep)

    return read


def _write(stage: Stage, node: Node) -> None:
    """A block of that name, of places as int32 and the values there."""
    value, axis = node.inputs[0], node.attrs["axis"]
    k = te.reduce_axis((0, value.shape[axis]), "k")
    reducer = te.comm_reducer(
        lambda a, b: _leading(a, b, node.op == "argmax", numeric_type(value.dtype).is_float),
        lambda place, dtype: (tirx.const(-1, place), tirx.const(0, dtype)),
        name=node.op,
    )

    def element(*indices: Any) -> Any:
        kept = [i for position, i in enumerate(indices) if position != axis or not node.attrs["keepdims"]]
        source = [*kept[:axis], k, *kept[axis:]]
        return reducer((k.var, stage.scoped(lambda: stage.element(value, source))), axis=k)

    places, _ = te.compute(node.output.shape, element, name=node.op)
    stage.define(node.output, lambda indices: tirx.Cast(node.output.dtype, load(places, indices)))


def _leading(a: _Pair, b: _Pair, largest: bool, is_float: bool) -> _Pair:
    """The better of two elements, in any order; one without a place is none."""
    (place, value), (other_place, other) = a, b
    better, same = value > other if largest else value < other, tirx.EQ(value, other)
    if is_float:
        better = tirx.any(better, tirx.all(tirx.isnan(value), tirx.Not(tirx.isnan(other))))
        same = tirx.any(same, tirx.all(tirx.isnan(value), tirx.isnan(other)))
    leads = tirx.any(better, tirx.all(same, place < other_place))
    chosen = tirx.any(other_place < 0, tirx.all(place >= 0, leads))
    return tirx.Select(chosen, place, other_place), tirx.Select(chosen, value, other)


SPECS: tuple[OpSpec, ...] = tuple(
    OpSpec(name, read={name: _read_as(name)}, write=_write) for name in ("argmax", "argmin")
)
