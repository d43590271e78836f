"""Histograms, repetitions, and places of elements that are not 0, in torch programs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from torch import fx
from tvm import relax

from host.importers.torch.functions.order_statistics import MOST_COMPARISONS
from host.importers.torch.placed import sizes_of


def _histogram(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """How many elements lie in each of equally large bins from `min` to `max`; both 0 for the data's own."""
    data, sizes, bins = given["self"], sizes_of(given["self"]), given["bins"]
    dtype = str(data.ty.dtype)
    if not sizes or not prod(sizes) or not dtype.startswith("float"):
        return None
    emit, op = builder.emit, relax.op
    flat = emit(op.reshape(data, (-1,)))
    low, high = (relax.const(float(given[name]), dtype) for name in ("min", "max"))
    if given["min"] == given["max"]:
        low, high = _own_bounds(builder, flat)
    place = emit(op.divide(emit(op.subtract(flat, low)), emit(op.subtract(high, low))))
    place = emit(op.multiply(place, relax.const(float(bins), dtype)))
    inside = emit(op.logical_and(emit(op.less_equal(low, flat)), emit(op.less_equal(flat, high))))
    # What is outside is counted behind the last bin; the last bin has both of its ends.
    place = emit(op.where(inside, place, relax.const(0.0, dtype)))
    number = emit(op.minimum(emit(op.astype(place, "int64")), relax.const(bins - 1, "int64")))
    number = emit(op.where(inside, number, relax.const(bins, "int64")))
    counts = relax.const(np.zeros(bins + 1, dtype), dtype)
    made = emit(op.scatter_elements(counts, number, emit(op.ones_like(flat)), 0, "add"))
    return emit(op.strided_slice(made, [0], [0], [bins]))


def _own_bounds(builder: relax.BlockBuilder, flat: Any) -> tuple[Any, Any]:
    """The smallest and the largest element, or both a step farther apart where they are equal."""
    emit, op, dtype = builder.emit, relax.op, str(flat.ty.dtype)
    low, high = emit(op.min(flat)), emit(op.max(flat))
    more = emit(op.astype(emit(op.equal(low, high)), dtype))
    return emit(op.subtract(low, more)), emit(op.add(high, more))


def _repeated(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The number of each element, as often as `repeats` says; how many there are together is known."""
    repeats, count = given["repeats"], given["output_size"]
    sizes = sizes_of(repeats)
    if not sizes or not isinstance(count, int) or count * sizes[0] > MOST_COMPARISONS:
        return None
    emit, op, dtype = builder.emit, relax.op, str(repeats.ty.dtype)
    ends = emit(op.cumsum(repeats, 0, dtype))
    places = relax.const(np.arange(count)[:, None].astype(dtype), dtype)
    before = emit(op.astype(emit(op.less_equal(ends, places)), "int64"))
    return emit(op.astype(emit(op.sum(before, -1)), dtype))


def _places(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The places (size, rank) of the first elements that are not 0; rows behind the last one are filled."""
    data, sizes, count = given["self"], sizes_of(given["self"]), given["size"]
    if not sizes or not prod(sizes) or not isinstance(count, int) or not count:
        return None
    emit, op, total = builder.emit, relax.op, prod(sizes)
    present, dtype = emit(op.reshape(data, (total,))), str(data.ty.dtype)
    if dtype != "bool":
        present = emit(op.not_equal(present, relax.const(0, dtype)))
    number = emit(op.cumsum(emit(op.astype(present, "int64")), 0, "int64"))
    row = emit(op.subtract(number, relax.const(1, "int64")))
    last = relax.const(count, "int64")
    # What is 0, or too many, goes to a row behind the others.
    row = emit(op.minimum(emit(op.where(present, row, last)), last))
    start = relax.const(np.full(count + 1, -1), "int64")
    made = emit(op.scatter_elements(start, row, relax.const(np.arange(total), "int64"), 0, "update"))
    made = emit(op.strided_slice(made, [0], [0], [count]))
    steps = np.cumprod([1, *sizes[:0:-1]])[::-1]
    columns = emit(op.floor_divide(emit(op.expand_dims(made, 1)), relax.const(steps.copy(), "int64")))
    columns = emit(op.floor_mod(columns, relax.const(np.array(sizes), "int64")))
    empty = emit(op.less(emit(op.expand_dims(made, 1)), relax.const(0, "int64")))
    return emit(op.where(empty, relax.const(given["fill_value"], "int64"), columns))


CONVERTERS: Mapping[str, Any] = {
    "histc.default": _histogram,
    "nonzero_static.default": _places,
    "repeat_interleave.Tensor": _repeated,
}
