"""Extremes so far, elements by their order, and the most frequent ones, along an axis of torch programs.

NaN is the largest number where elements are ordered, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from torch import fx
from tvm import relax

from host.importers.torch.placed import sizes_of

# Of one operator: every element is compared with every other one.
MOST_COMPARISONS = 1 << 26
_Parts = tuple[Any, ...]
# Two neighbouring parts of a row, the earlier one first, each a tuple of tensors; what they are together.
_Join = Callable[[relax.BlockBuilder, _Parts, _Parts], _Parts]


def _is_float(value: Any) -> bool:
    return str(value.ty.dtype).startswith(("float", "bfloat"))


def _scanned(builder: relax.BlockBuilder, parts: _Parts, axis: int, join: _Join) -> _Parts:
    """All elements up to each along an axis, in steps of 1, 2, 4, ...: W. D. Hillis and G. L. Steele, 1986.

    Args:
        builder: of the function.
        parts: tensors of one shape, which are joined together.
        axis: along which.
        join: of two parts; it is associative.
    """

    def cut(one: Any, low: int, high: int) -> Any:
        return builder.emit(relax.op.strided_slice(one, [axis], [low], [high]))

    size, step = (sizes_of(parts[0]) or [1])[axis], 1
    while step < size:
        earlier = tuple(cut(one, 0, size - step) for one in parts)
        later = tuple(cut(one, step, size) for one in parts)
        made = zip(parts, join(builder, earlier, later), strict=True)
        parts = tuple(
            builder.emit(relax.op.concat(relax.Tuple([cut(one, 0, step), new]), axis)) for one, new in made
        )
        step *= 2
    return parts


def _extreme_so_far(compare: Callable[[Any, Any], Any]) -> Any:
    """The extreme of all elements up to each, and the place of the last such."""

    def join(builder: relax.BlockBuilder, earlier: _Parts, later: _Parts) -> _Parts:
        emit, op = builder.emit, relax.op
        chosen = emit(compare(later[0], earlier[0]))
        if _is_float(later[0]):
            # Of NaN the last one counts; nothing else follows it.
            chosen = emit(op.logical_and(chosen, emit(op.logical_not(emit(op.isnan(earlier[0]))))))
            chosen = emit(op.logical_or(chosen, emit(op.isnan(later[0]))))
        pairs = zip(later, earlier, strict=True)
        return tuple(emit(op.where(chosen, new, old)) for new, old in pairs)

    def convert(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
        data, sizes = given["self"], sizes_of(given["self"])
        if sizes is None:
            return None
        if not sizes:
            return data, relax.const(0, "int64")
        axis = given["dim"] % len(sizes)
        shape = [size if at == axis else 1 for at, size in enumerate(sizes)]
        numbers = relax.const(np.broadcast_to(np.arange(sizes[axis]).reshape(shape), sizes).copy(), "int64")
        return _scanned(builder, (data, numbers), axis, join)

    return convert


def _logarithm_of_sum_so_far(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The logarithm of the sum of the exponentials of all elements up to each."""
    data, sizes = given["self"], sizes_of(given["self"])
    if not sizes:
        return None

    def join(builder: relax.BlockBuilder, earlier: _Parts, later: _Parts) -> _Parts:
        """The larger one and log(1 + exp(-distance)); equal ones, infinite ones among them, are not apart."""
        emit, op, (a, b) = builder.emit, relax.op, (earlier[0], later[0])
        zero, one = (relax.const(value, str(a.ty.dtype)) for value in (0.0, 1.0))
        apart = emit(op.where(emit(op.equal(a, b)), zero, emit(op.abs(emit(op.subtract(a, b))))))
        more = emit(op.log(emit(op.add(emit(op.exp(emit(op.negative(apart)))), one))))
        return (emit(op.add(emit(op.maximum(a, b)), more)),)

    return _scanned(builder, (data,), given["dim"] % len(sizes), join)[0]


def _by_order(builder: relax.BlockBuilder, given: Mapping[str, Any], place: int, keep: bool) -> Any:
    """The element that has `place` smaller ones along an axis, and where it is."""
    data, axis = given["self"], given["dim"]
    found = builder.emit(relax.op.topk(data, place + 1, axis, "both", False, "int64"))
    made = []
    for number in range(2):
        ordered = builder.emit(relax.TupleGetItem(found, number))
        one = builder.emit(relax.op.strided_slice(ordered, [axis], [place], [place + 1]))
        made.append(one if keep else builder.emit(relax.op.squeeze(one, [axis])))
    return tuple(made)


def _by_number(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The k-th smallest element along an axis, and where it is."""
    return _by_order(builder, given, given["k"] - 1, given["keepdim"]) if sizes_of(given["self"]) else None


def _median(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The middle element along an axis, the lower one of two, and where it is; NaN where there is one."""
    data, sizes, emit = given["self"], sizes_of(given["self"]), builder.emit
    if not sizes:
        return None
    axis, keep = given["dim"] % len(sizes), given["keepdim"]
    value, place = _by_order(builder, given, (sizes[axis] - 1) // 2, keep)
    if not _is_float(data):
        return value, place
    nan = emit(relax.op.astype(emit(relax.op.isnan(data)), "int32"))
    found = emit(relax.op.greater(emit(relax.op.max(nan, axis, keep)), relax.const(0, "int32")))
    value = emit(relax.op.where(found, relax.const(np.nan, str(data.ty.dtype)), value))
    return value, emit(relax.op.where(found, emit(relax.op.argmax(nan, axis, keep)), place))


def _median_of_all(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    sizes = sizes_of(given["self"])
    if not sizes:
        return None
    flat = builder.emit(relax.op.reshape(given["self"], [prod(sizes)]))
    made = _median(builder, node, {"self": flat, "dim": 0, "keepdim": False})
    return None if made is None else made[0]


def _median_of_numbers(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The middle one of the elements along an axis that are not NaN, and where it is."""
    data, sizes, emit = given["self"], sizes_of(given["self"]), builder.emit
    if not sizes or not _is_float(data):
        return None
    axis, op = given["dim"] % len(sizes), relax.op
    numbers = emit(op.astype(emit(op.logical_not(emit(op.isnan(data)))), "int64"))
    count = emit(op.sum(numbers, axis, True))
    # NaN is behind all numbers; of no numbers, the first NaN is the middle.
    middle = emit(op.floor_divide(emit(op.subtract(count, relax.const(1, "int64"))), relax.const(2, "int64")))
    middle = emit(op.maximum(middle, relax.const(0, "int64")))
    found = emit(op.topk(data, sizes[axis], axis, "both", False, "int64"))
    made = []
    for number in range(2):
        ordered = emit(relax.TupleGetItem(found, number))
        one = emit(op.gather_elements(ordered, middle, axis))
        made.append(one if given["keepdim"] else emit(op.squeeze(one, [axis])))
    return tuple(made)


def _most_frequent(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The element along an axis that there are most of, the smallest of several, and the last place of it."""
    data, sizes, emit, op = given["self"], sizes_of(given["self"]), builder.emit, relax.op
    dtype = str(data.ty.dtype)
    if not sizes or dtype == "bool" or prod(sizes) * sizes[given["dim"]] > MOST_COMPARISONS:
        return None
    rank, axis = len(sizes), given["dim"] % len(sizes)
    order = [other for other in range(rank) if other != axis] + [axis]
    rows = emit(op.permute_dims(data, order))
    equal = emit(op.equal(emit(op.expand_dims(rows, -1)), emit(op.expand_dims(rows, -2))))
    counts = emit(op.sum(emit(op.astype(equal, "int32")), -1))
    most = emit(op.equal(counts, emit(op.max(counts, -1, True))))
    above = relax.const(np.inf if _is_float(data) else np.iinfo(dtype).max, dtype)
    value = emit(op.min(emit(op.where(most, rows, above)), -1, True))
    numbers = relax.const(np.arange(sizes[axis]), "int64")
    here = emit(op.where(emit(op.equal(rows, value)), numbers, relax.const(0, "int64")))
    made = value, emit(op.max(here, -1, True))
    back = [order.index(at) for at in range(rank)]
    made = tuple(emit(op.permute_dims(one, back)) for one in made)
    return made if given["keepdim"] else tuple(emit(op.squeeze(one, [axis])) for one in made)


CONVERTERS: Mapping[str, Any] = {
    "cummax.default": _extreme_so_far(relax.op.greater_equal),
    "cummin.default": _extreme_so_far(relax.op.less_equal),
    "kthvalue.default": _by_number,
    "logcumsumexp.default": _logarithm_of_sum_so_far,
    "median.default": _median_of_all,
    "median.dim": _median,
    "mode.default": _most_frequent,
    "nanmedian.dim": _median_of_numbers,
}
