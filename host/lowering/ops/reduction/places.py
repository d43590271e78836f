"""Where the largest or smallest element along an axis is; attributes `axis` and `keepdims`.

Of equal elements it is the first, and NaN leads, as NumPy has it. TVM's own function begins with the smallest
finite number: for a row of minus infinities, or of bytes of zero, it answers -1.

Elements have a rank, an integer that grows as they get better. That of an element of up to four bytes and its
place are one integer of 64 bits, the key: in its upper half the rank, in its lower half how far the place is
from the last possible one. So the greatest key is that of the place wanted. Ranks of longer elements leave no
room for a place: the greatest rank is found first, then the first place that has it. Rules of reductions have
programs for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from host.lowering.builder import Builder
from host.lowering.expressions.math import bind
from host.lowering.expressions.stage import Expression, Indices, Stage, dtype_of, load
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec, Reader
from host.lowering.types import numeric_type

# Bytes of an element whose rank is half of a key.
_KEY_BYTES, _RANK_BITS = 4, 32
# The last place that a key has room for.
_LAST = (1 << 31) - 1
# The integers that hold the bits of floats, by bytes; and the bits of infinity, which are below those of NaN.
_BITS = {4: "int32", 8: "int64"}
_INFINITY = {"int32": 0x7F800000, "int64": 0x7FF0000000000000}


def _read_as(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value | None:
        value, axis, keep = call.value(0), call.attrs.axis, bool(call.attrs.keepdims)
        if value.dtype == "bool" or (axis is None and keep):
            return None
        if axis is None:
            value, axis = builder.reshape(value, (-1,)), 0
        axis = normalise_axis(int(axis), len(value.shape))
        if numeric_type(value.dtype).bytes > _KEY_BYTES and axis < len(value.shape) - 1:
            # Two reductions have programs along rows.
            others = [one for one in range(len(value.shape)) if one != axis]
            rows = builder.transpose(value, (*others, axis))
            found = builder.one(name, [rows], rows.shape[:-1], call.dtype, axis=len(others), keepdims=False)
            return builder.reshape(found, call.shape)
        return builder.one(name, [value], call.shape, call.dtype, axis=axis, keepdims=keep)

    return read


def _write(stage: Stage, node: Node) -> None:
    """A block of that name, then places of the type of the result."""
    if numeric_type(node.inputs[0].dtype).bytes <= _KEY_BYTES:
        _by_keys(stage, node)
    else:
        _by_ranks(stage, node)


def _by_keys(stage: Stage, node: Node) -> None:
    """A block of the greatest keys."""
    k = _places(node)

    def key(indices: Indices) -> Expression:
        rank = _rank(stage, node, indices, k)
        before_last = tirx.const(_LAST, "int32") - k.var
        return (rank << tirx.const(_RANK_BITS, "int64")) + before_last.astype("int64")

    # A reduction is the whole of its expression: names for shared values go inside.
    keys = stage.compute(node.output.shape, lambda i: te.max(stage.scoped(lambda: key(i)), axis=[k]), node.op)

    def place(indices: Indices) -> Expression:
        before_last = load(keys, indices) & tirx.const(_LAST, "int64")
        return (tirx.const(_LAST, "int64") - before_last).astype(node.output.dtype)

    stage.define(node.output, place)


def _by_ranks(stage: Stage, node: Node) -> None:
    """A block of the greatest ranks, then one of the first places that have them."""
    k, again = _places(node), _places(node)

    def best(indices: Indices) -> Expression:
        return te.max(stage.scoped(lambda: _rank(stage, node, indices, k)), axis=[k])

    ranks = stage.compute(node.output.shape, best, f"{node.op}_rank")

    def place(indices: Indices) -> Expression:
        is_best = tirx.EQ(_rank(stage, node, indices, again), load(ranks, indices))
        return tirx.Select(is_best, again.var, tirx.const(_LAST, "int32"))

    def first(indices: Indices) -> Expression:
        return te.min(stage.scoped(lambda: place(indices)), axis=[again])

    places = stage.compute(node.output.shape, first, node.op)
    stage.define(node.output, lambda indices: load(places, indices).astype(node.output.dtype))


def _places(node: Node) -> Any:
    """An axis over all places of an element."""
    return te.reduce_axis((0, node.inputs[0].shape[node.attrs["axis"]]), "k")


def _source(node: Node, indices: Indices, k: Any) -> list[Any]:
    """The indices of an element, from those of its result and its place."""
    axis, keep = node.attrs["axis"], node.attrs["keepdims"]
    kept = [i for position, i in enumerate(indices) if position != axis or not keep]
    return [*kept[:axis], k, *kept[axis:]]


def _rank(stage: Stage, node: Node, indices: Indices, k: Any) -> Expression:
    """A number, as int64, that is the greater the better an element is; of 32 bits where a key is to hold it.

    Args:
        stage: of the function.
        node: which reads the element.
        indices: of the result.
        k: the place of the element.
    """
    value, largest = node.inputs[0], node.op == "argmax"
    element, kind = stage.element(value, _source(node, indices, k)), numeric_type(value.dtype)
    if kind.is_float:
        single = element if kind.bytes >= _KEY_BYTES else element.astype("float32")
        bits = tirx.reinterpret(_BITS[max(kind.bytes, _KEY_BYTES)], single)
        return bind(bits, lambda b: _rank_of_bits(b, largest)).astype("int64")
    rank = element.astype("int64")
    if value.dtype == "uint32":
        rank = rank - tirx.const(1 << 31, "int64")
    if value.dtype == "uint64":
        rank = rank ^ tirx.const(-1 << 63, "int64")
    return rank if largest else ~rank


def _rank_of_bits(bits: Expression, largest: bool) -> Expression:
    """The rank of a float by its bits, as signed integers: -0 and 0 have the same, and NaN the greatest."""
    dtype = dtype_of(bits)
    zero, greatest = tirx.const(0, dtype), tirx.const(np.iinfo(dtype).max, dtype)
    size = bits & greatest
    signed = tirx.Select(bits >= zero, size, zero - size)
    ordered = signed if largest else ~signed
    return tirx.Select(size > tirx.const(_INFINITY[dtype], dtype), greatest, ordered)


SPECS: tuple[OpSpec, ...] = tuple(
    OpSpec(name, read={name: _read_as(name)}, write=_write) for name in ("argmax", "argmin")
)
