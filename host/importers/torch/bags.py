"""Rows of a table that are added up bag by bag, as torch's EmbeddingBag."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
import tvm
from torch import fx
from tvm import relax

from host.importers.torch.functions.order_statistics import MOST_COMPARISONS
from host.importers.torch.placed import sizes_of

OPERATORS = ("_embedding_bag.default", "_embedding_bag_forward_only.default")
# By torch's number of the mode: the reduction of equally large bags, and of rows that are scattered.
_REDUCTIONS = {0: relax.op.sum, 1: relax.op.mean, 2: relax.op.max}
_SCATTERED = {0: "add", 1: "add", 2: "max"}
_MEAN, _MAX = 1, 2


def bagged(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The sum, mean or maximum (B, D) of the rows of each bag; zeros for an empty bag.

    None where the results for training are used, where there are no rows, and where too many offsets would be
    compared with too many rows.
    """
    numbers, emit = given["indices"], builder.emit
    count, sizes = sizes_of(numbers), sizes_of(given["weight"])
    offsets = sizes_of(given["offsets"])
    if not count or not count[0] or not offsets or not offsets[0] or sizes is None or _is_training(node):
        return None
    rows = emit(relax.op.take(given["weight"], numbers, 0, mode="clip"))
    if given["per_sample_weights"] is not None:
        rows = emit(relax.op.multiply(rows, emit(relax.op.expand_dims(given["per_sample_weights"], 1))))
    shape = _equal_bags(given["offsets"], count[0], given["include_last_offset"])
    if shape is not None and given["padding_idx"] < 0:
        bags = emit(relax.op.reshape(rows, (*shape, sizes[-1])))
        return emit(_REDUCTIONS[given["mode"]](bags, 1)), None, None, None
    places = _bag_of_each(builder, given["offsets"], offsets[0], count[0])
    if places is None:
        return None
    bags = offsets[0] - int(given["include_last_offset"])
    made = _scattered(builder, given, rows, places, (bags, sizes[-1]))
    return made, None, None, None


def _equal_bags(offsets: Any, rows: int, last_included: bool) -> tuple[int, int] | None:
    """How many bags there are, and how many rows each has; None where that is not known, or differs."""
    if not isinstance(offsets, tvm.ir.GenericConst):
        return None
    begins = offsets.value.numpy()
    if last_included:
        # Rows behind the last offset are in no bag.
        if begins[-1] != rows:
            return None
        begins = begins[:-1]
    count = len(begins)
    if not count or rows % count or (begins != np.arange(count) * (rows // count)).any():
        return None
    return count, rows // count


def _bag_of_each(builder: relax.BlockBuilder, offsets: Any, bags: int, rows: int) -> Any:
    """The number of each row's bag, which begins at the last offset that is not behind the row.

    As many as the offsets are where the last one is that behind the last bag. None where there are too many.
    """
    if isinstance(offsets, tvm.ir.GenericConst):
        found = np.searchsorted(offsets.value.numpy(), np.arange(rows), side="right") - 1
        return relax.const(found.astype(np.int64), "int64")
    if rows * bags > MOST_COMPARISONS:
        return None
    emit, op, dtype = builder.emit, relax.op, str(offsets.ty.dtype)
    begun = emit(op.less_equal(offsets, relax.const(np.arange(rows)[:, None].astype(dtype), dtype)))
    count = emit(op.sum(emit(op.astype(begun, "int64")), -1))
    return emit(op.subtract(count, relax.const(1, "int64")))


def _scattered(
    builder: relax.BlockBuilder, given: Mapping[str, Any], rows: Any, places: Any, shape: tuple[int, int]
) -> Any:
    """The bags (B, D) of rows at these places; a row without a bag is at place B.

    Torch takes the rows behind the last offset for some of the last bag. Without padding, they are in no sum,
    and a mean is of their number but not of them.
    """
    emit, op, dtype, mode = builder.emit, relax.op, str(rows.ty.dtype), given["mode"]
    (bags, width), count = shape, (sizes_of(rows) or [0])[0]
    nothing = -inf if mode == _MAX else 0.0
    numbers = given["indices"]
    kept = emit(op.not_equal(numbers, relax.const(given["padding_idx"], str(numbers.ty.dtype))))
    rows = emit(op.where(emit(op.expand_dims(kept, 1)), rows, relax.const(nothing, dtype)))
    start = relax.const(np.full((bags + 1, width), nothing, dtype), dtype)
    within = emit(op.minimum(places, relax.const(bags - 1, "int64")))
    places = within if mode == _MAX or given["padding_idx"] >= 0 else places
    wide = emit(op.broadcast_to(emit(op.expand_dims(places, 1)), (count, width)))
    made = emit(op.scatter_elements(start, wide, rows, 0, _SCATTERED[mode]))
    made = emit(op.strided_slice(made, [0], [0], [bags]))
    if mode not in (_MEAN, _MAX):
        return made
    zero, one = (relax.const(number, dtype) for number in (0.0, 1.0))
    start = relax.const(np.zeros((bags + 1, 1), dtype), dtype)
    present = emit(op.expand_dims(emit(op.astype(kept, dtype)), 1))
    found = emit(op.scatter_elements(start, emit(op.expand_dims(within, 1)), present, 0, "add"))
    found = emit(op.strided_slice(found, [0], [0], [bags]))
    if mode == _MEAN:
        return emit(op.divide(made, emit(op.maximum(found, one))))
    return emit(op.where(emit(op.greater(found, zero)), made, zero))


def _is_training(node: fx.Node) -> bool:
    """Whether anything reads more than the bags: which rows they had, and how many."""
    return any(
        user.target is not operator.getitem or (user.args[1] != 0 and bool(user.users)) for user in node.users
    )
