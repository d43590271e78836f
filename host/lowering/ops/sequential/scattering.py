"""Elements written into a copy of a tensor, one after another; attributes `reduction`, `strides`.

Inputs are data (O, A, I), places (O, M, I, Q) and updates (O, M, I); the output is like the data. A place
along A is the sum of its Q numbers times `strides`, and counts from the end below 0. Places that are the
same along a dimension have size 1 there: one number serves a row of updates, which is then added in
vectors. Of a place that is named twice, updates are combined in their order. The largest and the smallest
are NaN where one is, as in PyTorch: what ONNX Runtime gives depends on which of them comes first.

Elements of different O and I have nothing to do with each other: tiles of I are steps of their own. A step
reads back what it has written alone, so it is declared to read its inputs only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, broadcast_shape, constant
from host.lowering.script import buffer_text, extreme_text, function_of_script
from host.lowering.spec import OpSpec

# Also of its block, which states how updates are combined, and the strides of places.
OPERATION, STATED = "scatter", "edgetlm.scatter"
# Elements along I of a step.
_TILE = 64
_COMBINED = {
    "update": "{update}",
    "add": "{old} + {update}",
    "mul": "{old} * {update}",
}
_EXTREMES = ("max", "min")


def scatter_along(
    builder: Builder, data: Value, indices: Value, updates: Value, axis: int, reduction: str
) -> Value | None:
    """Updates at the places that indices of equal shape name along an axis; None where TVM has to write it.

    Other dimensions are as large as those of the data.
    """
    others = [size for other, size in enumerate(indices.shape) if other != axis]
    alike = others == [size for other, size in enumerate(data.shape) if other != axis]
    if not alike or indices.shape != updates.shape or not _is_written(data, updates, reduction):
        return None
    outer, size, inner = prod(data.shape[:axis]), data.shape[axis], prod(data.shape[axis + 1 :])
    count = indices.shape[axis]
    places = _unrepeated(builder, indices, {})
    own = [places.shape[:axis], places.shape[axis : axis + 1], places.shape[axis + 1 :]]
    whole = [(1, outer), (1, count), (1, inner)]
    if any(prod(part) not in sizes for part, sizes in zip(own, whole, strict=True)):
        places, own = indices, [data.shape[:axis], (count,), data.shape[axis + 1 :]]
    return _emitted(
        builder,
        data,
        builder.reshape(places, (*map(prod, own), 1)),
        updates,
        (outer, size, inner, count),
        reduction,
        (1,),
    )


def scatter_tuples(
    builder: Builder, data: Value, indices: Value, updates: Value, reduction: str
) -> Value | None:
    """Updates at the places that tuples of indices, one for each of the first axes, name; else None."""
    depth = indices.shape[-1]
    named, rest = data.shape[:depth], data.shape[depth:]
    fits = bool(depth) and updates.shape == (*indices.shape[:-1], *rest)
    if not fits or not _is_written(data, updates, reduction):
        return None
    count = prod(indices.shape[:-1])
    strides = tuple(prod(named[axis + 1 :]) for axis in range(depth))
    places = builder.reshape(indices, (1, count, 1, depth))
    return _emitted(builder, data, places, updates, (1, prod(named), prod(rest), count), reduction, strides)


def _is_written(data: Value, updates: Value, reduction: str) -> bool:
    """Whether there is a function for it."""
    known = reduction == "update" or (reduction in (*_COMBINED, *_EXTREMES) and data.dtype != "bool")
    return known and data.dtype == updates.dtype and bool(data.size) and bool(updates.size)


def _emitted(
    builder: Builder,
    data: Value,
    places: Value,
    updates: Value,
    sizes: tuple[int, int, int, int],
    reduction: str,
    strides: tuple[int, ...],
) -> Value:
    outer, size, inner, count = sizes
    shape = (outer, size, inner)
    tensors = [builder.reshape(data, shape), places, builder.reshape(updates, (outer, count, inner))]
    made = builder.one(OPERATION, tensors, shape, data.dtype, reduction=reduction, strides=strides)
    return builder.reshape(made, data.shape)


def _unrepeated(builder: Builder, value: Value, known: dict[Value, Value]) -> Value:
    """The value before it was repeated along dimensions, which have size 1 there."""
    if value not in known:
        known[value] = _before_repeats(builder, value, known)
    return known[value]


def _before_repeats(builder: Builder, value: Value, known: dict[Value, Value]) -> Value:
    rank, node = len(value.shape), value.producer
    if value.data is not None:
        return constant(_without_repeats(value.data))
    if node is None:
        return value
    if node.op == "broadcast":
        source = node.inputs[0]
        return builder.reshape(source, (1,) * (rank - len(source.shape)) + source.shape)
    if not node.spec.is_elementwise or len(node.outputs) > 1:
        return value
    inputs = [_unrepeated(builder, one, known) for one in node.inputs]
    shape = broadcast_shape(*(one.shape for one in inputs))
    if prod(shape) == value.size:
        return value
    made = builder.one(node.op, inputs, shape, value.dtype, **node.attrs)
    return builder.reshape(made, (1,) * (rank - len(shape)) + shape)


def _without_repeats(data: np.ndarray) -> np.ndarray:
    for axis in range(data.ndim):
        first = np.take(data, [0], axis) if data.shape[axis] else data
        if (data == first).all():
            data = first
    return data


def scatter_function(node: Node) -> tirx.PrimFunc:
    """The function of a "scatter" node; arguments are its inputs and then its output."""
    return function_of_script(_text(node))


def _text(node: Node) -> str:
    """TVMScript of the function: a copy of the data, and one update after another."""
    data, places, updates = node.inputs
    outer, size, inner = data.shape
    reduction, strides, places_sizes = node.attrs["reduction"], node.attrs["strides"], places.shape
    stated = json.dumps({"reduction": reduction, "strides": strides})
    tile = min(_TILE, inner)
    column = f"vt * {_TILE} + i"
    place = place_text(places_sizes, strides, ("vo", "m", column))
    combined = combined_text(
        reduction, f"result[vo, at[0], {column}]", f"updates[vo, m, {column}]", data.dtype
    )
    columns = f"for i in range(T.min({_TILE}, {inner} - vt * {_TILE})):"
    found = [f"at[0] = {place}", "if at[0] < 0:", f"    at[0] = at[0] + {size}"]
    stored = f"result[vo, at[0], {column}] = {combined}"
    if places_sizes[2] == 1:
        body = [*found, columns, f"    {stored}"]
    else:
        body = [columns, *(f"    {line}" for line in (*found, stored))]
    region = f"vt * {_TILE} : vt * {_TILE} + {tile}"
    everywhere = ", ".join(f"0:{extent}" for extent in places_sizes)
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    data: {buffer_text(data)}, places: {buffer_text(places)}, updates: {buffer_text(updates)},
    result: {buffer_text(node.output)},
) -> None:
    for o, t in T.grid({outer}, {-(-inner // _TILE)}):
        with T.sblock("scatter"):
            vo, vt = T.axis.remap("SS", [o, t])
            T.sblock_attr({{"edgetlm.whole": 1, "{STATED}": {stated!r}}})
            T.reads(
                data[vo, 0:{size}, {region}], places[{everywhere}],
                updates[vo, 0:{updates.shape[1]}, {region}]
            )
            T.writes(result[vo, 0:{size}, {region}])
            at = T.sblock_alloc_buffer((1,), "int32", scope="local")
            for a in range({size}):
                {columns}
                    result[vo, a, {column}] = data[vo, a, {column}]
            for m in range({updates.shape[1]}):
{_lines(16, body)}
"""


def combined_text(reduction: str, old: str, update: str, dtype: str) -> str:
    """Text of what an update makes of the element that is there."""
    if reduction in _EXTREMES:
        return extreme_text(reduction, old, update, dtype)
    return _COMBINED[reduction].format(old=old, update=update)


def place_text(sizes: Sequence[int], strides: Sequence[int], names: Sequence[str]) -> str:
    """Text of the place along A of an update, below 0 where it counts from the end.

    Args:
        sizes: of the places, 1 along dimensions in which they are the same.
        strides: of the numbers of a place.
        names: text of the update's indices along O, M and I.
    """
    indices = ", ".join("0" if size == 1 else name for size, name in zip(sizes[:3], names, strict=True))
    parts = [f'T.cast(places[{indices}, {q}], "int32") * {stride}' for q, stride in enumerate(strides)]
    return " + ".join(parts)


def _lines(indent: int, lines: list[str]) -> str:
    return "\n".join(" " * indent + line for line in lines)


SPECS: tuple[OpSpec, ...] = (OpSpec(OPERATION, function=scatter_function),)
