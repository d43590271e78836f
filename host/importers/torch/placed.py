"""Rows written or added to places along one axis: of new tokens to a cache of keys, of messages to a node.

`cache[:, :, positions] = rows`, `index_copy` and `index_add` become `index_put` with one index that is a
vector. TVM takes an index for each axis alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

OPERATOR = "index_put.default"
# Rows up to which each is a selection, which is fused into its neighbours.
_FEW = 8


def along_one_axis(arguments: Sequence[Any]) -> int | None:
    """The axis that the one index of an `index_put` is for; None where it is of another form.

    Args:
        arguments: of the operator: data, indices (None for all elements of an axis), values, accumulate.
    """
    data, indices, values, accumulate = (*arguments, False)[:4]
    given = [axis for axis, one in enumerate(indices) if one is not None]
    if len(given) != 1 or not isinstance(accumulate, bool):
        return None
    axis = given[0]
    index = indices[axis]
    vector = index.ty.ndim == 1 and str(index.ty.dtype) in ("int64", "int32")
    # Of data with an open length, or of values that are broadcast, TVM has to know.
    known = all(sizes_of(one) is not None for one in (data, index, values))
    if not vector or not known:
        return None
    wanted = sizes_of(data)
    assert wanted is not None
    wanted[axis] = (sizes_of(index) or [0])[0]
    return axis if sizes_of(values) == wanted else None


def placed(builder: relax.BlockBuilder, arguments: Sequence[Any], axis: int) -> relax.Expr:
    """The data with the values at the places of the index; places count from the end where they are below 0.

    Of a place that is named twice, the last value is taken. Values that are accumulated are added to what is
    at their places.

    Args:
        builder: for what is computed on the way.
        arguments: see `along_one_axis`.
        axis: that it has found.
    """
    emit, op = builder.emit, relax.op
    data, indices, values, accumulate = (*arguments, False)[:4]
    sizes, count = sizes_of(data), (sizes_of(indices[axis]) or [0])[0]
    assert sizes is not None
    dtype = str(indices[axis].ty.dtype)
    negative = emit(op.less(indices[axis], relax.const(0, dtype)))
    from_end = emit(op.add(indices[axis], relax.const(sizes[axis], dtype)))
    places = emit(op.where(negative, from_end, indices[axis]))
    shape = [1] * len(sizes)
    if accumulate or count > _FEW:
        shape[axis] = count
        whole = emit(op.broadcast_to(emit(op.reshape(places, shape)), sizes_of(values)))
        return emit(op.scatter_elements(data, whole, values, axis, "add" if accumulate else "update"))
    shape[axis] = sizes[axis]
    numbers = emit(op.reshape(emit(op.arange(0, sizes[axis], 1, dtype)), shape))
    made = data
    for row in range(count):
        place = emit(op.strided_slice(places, [0], [row], [row + 1]))
        one = emit(op.strided_slice(values, [axis], [row], [row + 1]))
        made = emit(op.where(emit(op.equal(numbers, place)), one, made))
    return made


def sizes_of(tensor: Any) -> list[int] | None:
    """The sizes of a tensor; None where one is open, or it is no tensor."""
    shape = getattr(getattr(tensor, "ty", None), "shape", None)
    if shape is None:
        return None
    sizes = [getattr(size, "value", size) for size in getattr(shape, "values", ())]
    return sizes if all(isinstance(size, int) for size in sizes) else None
