"""Rows written to places along one axis, as a cache of keys and values takes those of new tokens.

`cache[:, :, positions] = rows` and `index_copy` become `index_put` with one index that is a vector. TVM takes
an index for each axis alone.
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
    if len(given) != 1 or accumulate is not False:
        return None
    axis = given[0]
    index = indices[axis]
    vector = index.ty.ndim == 1 and str(index.ty.dtype) in ("int64", "int32")
    # Of data with an open length, or of values that are broadcast, TVM has to know.
    known = all(_sizes(one) is not None for one in (data, index, values))
    if not vector or not known:
        return None
    wanted = _sizes(data)
    assert wanted is not None
    wanted[axis] = (_sizes(index) or [0])[0]
    return axis if _sizes(values) == wanted else None


def placed(builder: relax.BlockBuilder, arguments: Sequence[Any], axis: int) -> relax.Expr:
    """The data with the values at the places of the index; places count from the end where they are below 0.

    Of a place that is named twice, the last value is taken.

    Args:
        builder: for what is computed on the way.
        arguments: see `along_one_axis`.
        axis: that it has found.
    """
    emit, op = builder.emit, relax.op
    data, indices, values = arguments[:3]
    sizes, count = _sizes(data), (_sizes(indices[axis]) or [0])[0]
    assert sizes is not None
    dtype = str(indices[axis].ty.dtype)
    negative = emit(op.less(indices[axis], relax.const(0, dtype)))
    from_end = emit(op.add(indices[axis], relax.const(sizes[axis], dtype)))
    places = emit(op.where(negative, from_end, indices[axis]))
    shape = [1] * len(sizes)
    if count > _FEW:
        shape[axis] = count
        whole = emit(op.broadcast_to(emit(op.reshape(places, shape)), _sizes(values)))
        return emit(op.scatter_elements(data, whole, values, axis))
    shape[axis] = sizes[axis]
    numbers = emit(op.reshape(emit(op.arange(0, sizes[axis], 1, dtype)), shape))
    made = data
    for row in range(count):
        place = emit(op.strided_slice(places, [0], [row], [row + 1]))
        one = emit(op.strided_slice(values, [axis], [row], [row + 1]))
        made = emit(op.where(emit(op.equal(numbers, place)), one, made))
    return made


def _sizes(tensor: Any) -> list[int] | None:
    """The sizes of a tensor; None where one is open, or it is no tensor."""
    shape = getattr(getattr(tensor, "ty", None), "shape", None)
    if shape is None:
        return None
    sizes = [getattr(size, "value", size) for size in getattr(shape, "values", ())]
    return sizes if all(isinstance(size, int) for size in sizes) else None
