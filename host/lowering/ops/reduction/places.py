"""Where the largest or smallest element along an axis is; attributes `axis` and `keepdims`.

Of equal elements it is the first, and NaN leads, as NumPy has it. TVM's own function begins with the smallest
finite number: for a row of minus infinities, or of bytes of zero, it answers -1.

Pairs of a place and a value are combined one by one, and no rule has a program for that. On a CPU the place
is therefore found by two reductions, which have vectors: the extreme, and the least of the places of all
elements that are equal to it. Those of a row in memory are one function, which reads the row once.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import te, tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.expressions.truth import compared
from host.lowering.graph import Graph, Node, Value, normalise_axis
from host.lowering.ops.reduction.axes import reduced
from host.lowering.reader.call import OperatorCall
from host.lowering.rebuild import rebuild
from host.lowering.spec import GraphPass, Kind, OpSpec, Phase, Reader
from host.lowering.types import numeric_type
from targets import HardwareModel

# A place and the value there.
_Pair = tuple[Expression, Expression]
_EXTREMES = {"argmax": "max", "argmin": "min"}
# Of fewer elements, the call of a second function costs more than vectors save.
_FEW_ELEMENTS = 2048
# Places are compared as floats, which hold whole numbers up to here.
_MOST_PLACES = 1 << 24


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


def _by_reductions(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph whose places are found by two reductions, where there is enough for vectors."""
    if hardware.gpu is not None:
        return graph

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op not in _EXTREMES:
            return builder.copy(node, inputs)
        value, axis = inputs[0], int(node.attrs["axis"])
        long = value.size >= _FEW_ELEMENTS and value.shape[axis] <= _MOST_PLACES
        if value.dtype != "float32" or not long:
            return builder.copy(node, inputs)
        if prod(value.shape[axis + 1 :]) == 1:
            value = builder.reshape(value, value.shape[: axis + 1])
        shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
        kind, attrs = _EXTREMES[node.op], {"axes": (axis,), "keepdims": True}
        sources = [value]
        if axis + 1 < len(value.shape):
            sources.append(builder.one(kind, [value], shape, value.dtype, **attrs))
        place = builder.one("place", sources, shape, "int32", kind=kind, **attrs)
        return builder.reshape(builder.cast(place, node.output.dtype), node.output.shape)

    return rebuild(graph, rule)


def _place(stage: Stage, node: Node) -> None:
    """Block "place": the least of the places of all elements that are equal to the extreme, or NaN.

    Without a second input, which is the extreme, a block before it finds that one.
    """
    value, *given = node.inputs
    [axis] = node.attrs["axes"]
    kind, data = node.attrs["kind"], stage.tensor(value, "prologue")
    found = None if given else reduced(stage, node, lambda i: load(data, i), kind, kind)

    def element(indices: Indices) -> Expression:
        own, at = load(data, indices), [0 if dim == axis else i for dim, i in enumerate(indices)]
        extreme = stage.element(given[0], at) if found is None else load(found, at)
        leads = tirx.any(compared("equal", own, extreme), compared("not_equal", own, own))
        index = indices[axis]
        place = tirx.Cast("float32", index.var if isinstance(index, tirx.IterVar) else index)
        return tirx.Select(leads, place, tirx.max_value("float32"))

    least = reduced(stage, node, element, "min", "place")
    stage.define(node.output, lambda indices: tirx.Cast("int32", load(least, indices)))


SPECS: tuple[OpSpec, ...] = (
    *(OpSpec(name, read={name: _read_as(name)}, write=_write) for name in _EXTREMES),
    OpSpec(
        "place",
        Kind.REDUCTION,
        write=_place,
        # In half precision an extreme may be stored as another number than the element that it is.
        passes=(GraphPass(Phase.SIMPLIFIED, _by_reductions, single=True),),
        output_type="int32",
    ),
)
