"""Elements written into a copy of a tensor: constants give a constant, a box of elements a concatenation.

Exporters write `y[..., 0:2] = x` as a scatter whose indices are a constant that names every element. Other
scatters are a function of their own (`ops.sequential.scattering`). Without updates, a scatter is its tensor:
TVM refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant, normalise_axis
from host.lowering.ops.sequential.scattering import scatter_along, scatter_tuples
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value | None:
    data, indices, updates = (call.value(index) for index in range(3))
    if not updates.size:
        return data
    axis, reduction = normalise_axis(int(call.attrs.axis), len(data.shape)), str(call.attrs.reduction)
    if reduction == "update":
        known = _of_constants(data.data, indices.data, updates.data, axis)
        if known is not None:
            return constant(known)
    return scatter_along(builder, data, indices, updates, axis, reduction)


def _of_constants(
    data: np.ndarray | None, indices: np.ndarray | None, updates: np.ndarray | None, axis: int
) -> np.ndarray | None:
    """A table that a model makes piece by piece; None where something is not known."""
    if data is None or indices is None or updates is None:
        return None
    others = [size for other, size in enumerate(data.shape) if other != axis]
    if indices.shape != updates.shape or [*indices.shape[:axis], *indices.shape[axis + 1 :]] != others:
        return None
    size = data.shape[axis]
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        return None
    result = data.copy()
    np.put_along_axis(result, indices, updates, axis)
    return result


def _read_nd(builder: Builder, call: OperatorCall) -> Value | None:
    data, indices, updates = (call.value(index) for index in range(3))
    if not updates.size:
        return data
    reduction = str(call.attrs.reduction)
    if reduction == "update" and indices.data is not None and indices.size:
        made = _of_known_places(builder, data, indices.data, updates)
        if made is not None:
            return made
    return scatter_tuples(builder, data, indices, updates, reduction)


def _of_known_places(builder: Builder, data: Value, indices: np.ndarray, updates: Value) -> Value | None:
    """A constant of constants, or a concatenation where constant indices name a box of whole steps."""
    places = indices.reshape(-1, indices.shape[-1])
    count = places.shape[1]
    shape = (*indices.shape[:-1], *data.shape[count:])
    inside = (places >= 0).all() and (places < np.array(data.shape[:count])).all()
    if not inside or updates.shape != shape or updates.dtype != data.dtype:
        return None
    if data.data is not None and updates.data is not None:
        result = data.data.copy()
        result[tuple(np.moveaxis(indices, -1, 0))] = updates.data
        return constant(result)
    box = _box(places)
    if box is None:
        return None
    begin, sizes = box
    part = builder.reshape(updates, (*sizes, *data.shape[count:]))
    return _replaced(builder, data, part, begin)


def _box(places: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Begin and sizes of the box whose elements the places are, in the order of memory; None for others."""
    begin, end = places[0], places[-1] + 1
    sizes = end - begin
    if (sizes <= 0).any() or int(np.prod(sizes, dtype=np.int64)) != len(places):
        return None
    grid = np.stack(np.unravel_index(np.arange(len(places)), tuple(sizes)), axis=-1) + begin
    if (grid != places).any():
        return None
    return tuple(int(number) for number in begin), tuple(int(number) for number in sizes)


def _replaced(builder: Builder, data: Value, part: Value, begin: Sequence[int], axis: int = 0) -> Value:
    """`data` with `part` from `begin` on, which names its first dimensions; those before `axis` are equal."""
    while axis < len(begin) and part.shape[axis] == data.shape[axis]:
        axis += 1
    if axis == len(begin):
        return part
    first, size = begin[axis], part.shape[axis]
    middle = _cut(builder, data, axis, first, size)
    pieces = [
        _cut(builder, data, axis, 0, first),
        _replaced(builder, middle, part, begin, axis + 1),
        _cut(builder, data, axis, first + size, data.shape[axis] - first - size),
    ]
    pieces = [piece for piece in pieces if piece.shape[axis]]
    return builder.one("concat", pieces, data.shape, data.dtype, axis=axis)


def _cut(builder: Builder, data: Value, axis: int, first: int, size: int) -> Value:
    begin = [first if other == axis else 0 for other in range(len(data.shape))]
    shape = [size if other == axis else length for other, length in enumerate(data.shape)]
    return builder.slice(data, begin, shape, [1] * len(shape))


# Read as a constant, as parts or as "scatter": nodes of these names are those that TVM writes.
SPECS: tuple[OpSpec, ...] = (
    OpSpec("scatter_elements", read={"scatter_elements": _read}),
    OpSpec("scatter_nd", read={"scatter_nd": _read_nd}),
)
