"""Where the largest or smallest element along an axis is; attributes `axis` and `keepdims`.

Of equal elements it is the first, and NaN leads, as NumPy has it. TVM's own function begins with the smallest
finite number: for a row of minus infinities, or of bytes of zero, it answers -1.

An element of up to four bytes and its place are one integer of 64 bits, the key: in its upper half the rank,
which grows as elements get better, in its lower half how far the place is from the last possible one. So the
greatest key is that of the place wanted, and every rule of reductions has a program for it. Longer elements
are compared in pairs of a place and a value, which no rule knows.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from host.lowering.builder import Builder
from host.lowering.expressions.math import bind
from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec, Reader
from host.lowering.types import numeric_type

# A place and the value there.
_Pair = tuple[Expression, Expression]
# Bytes of an element whose rank is half of a key.
_RANKED_BYTES, _RANK_BITS = 4, 32
# The last place that a key has room for; of an element's bits, all but its sign.
_LAST = _SIZE = (1 << 31) - 1
# Bits of infinity in single precision, which are below those of NaN.
_INFINITY = 0x7F800000


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
    """A block of that name, then places of the type of the result."""
    if numeric_type(node.inputs[0].dtype).bytes <= _RANKED_BYTES:
        _by_keys(stage, node)
    else:
        _by_pairs(stage, node)


def _by_keys(stage: Stage, node: Node) -> None:
    """A block of the greatest keys."""
    value = node.inputs[0]
    k = te.reduce_axis((0, value.shape[node.attrs["axis"]]), "k")

    def key(indices: Indices) -> Expression:
        rank = _rank(stage.element(value, _source(node, indices, k)), value.dtype, node.op == "argmax")
        before_last = tirx.const(_LAST, "int32") - k.var
        return (rank << tirx.const(_RANK_BITS, "int64")) + before_last.astype("int64")

    # A reduction is the whole of its expression: names for shared values go inside.
    keys = stage.compute(node.output.shape, lambda i: te.max(stage.scoped(lambda: key(i)), axis=[k]), node.op)

    def place(indices: Indices) -> Expression:
        before_last = load(keys, indices) & tirx.const(_LAST, "int64")
        return (tirx.const(_LAST, "int64") - before_last).astype(node.output.dtype)

    stage.define(node.output, place)


def _source(node: Node, indices: Indices, k: Any) -> list[Any]:
    """The indices of an element, from those of its result and its place."""
    axis, keep = node.attrs["axis"], node.attrs["keepdims"]
    kept = [i for position, i in enumerate(indices) if position != axis or not keep]
    return [*kept[:axis], k, *kept[axis:]]


def _rank(value: Expression, dtype: str, largest: bool) -> Expression:
    """A number of 32 bits, as int64, that is the greater the better an element is."""
    kind = numeric_type(dtype)
    if kind.is_float:
        bits = tirx.reinterpret("int32", value if dtype == "float32" else value.astype("float32"))
        return bind(bits, lambda b: _rank_of_bits(b, largest)).astype("int64")
    rank = value.astype("int64")
    if dtype == "uint32":
        rank = rank - tirx.const(1 << 31, "int64")
    return rank if largest else ~rank


def _rank_of_bits(bits: Expression, largest: bool) -> Expression:
    """The rank of a number of single precision by its bits: -0 and 0 have the same, and NaN the greatest."""
    zero, size = tirx.const(0, "int32"), bits & tirx.const(_SIZE, "int32")
    signed = tirx.Select(bits >= zero, size, zero - size)
    ordered = signed if largest else ~signed
    return tirx.Select(size > tirx.const(_INFINITY, "int32"), tirx.const(_SIZE, "int32"), ordered)


def _by_pairs(stage: Stage, node: Node) -> None:
    """A block of places as int32 and the values there."""
    value, axis = node.inputs[0], node.attrs["axis"]
    k = te.reduce_axis((0, value.shape[axis]), "k")
    reducer = te.comm_reducer(
        lambda a, b: _leading(a, b, node.op == "argmax", numeric_type(value.dtype).is_float),
        lambda place, dtype: (tirx.const(-1, place), tirx.const(0, dtype)),
        name=node.op,
    )

    def element(*indices: Any) -> Any:
        source = _source(node, indices, k)
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
