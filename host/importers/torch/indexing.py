"""Elements of torch programs by number along some axes: read (`index`), written or added (`index_put`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from torch import fx
from tvm import relax

from host.importers.torch.placed import sizes_of


def indexed(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Elements by number along some axes."""
    data, emit = given["self"], builder.emit
    found = _Places.of(builder, data, given["indices"])
    if found is None:
        return None
    if len(found.axes) == 1:
        return emit(relax.op.take(data, found.numbers, found.axes[0], mode="clip"))
    taken = emit(relax.op.take(found.in_front(builder, data), found.numbers, 0, mode="clip"))
    return emit(relax.op.permute_dims(taken, found.order)) if found.first else taken


def index_put(builder: relax.BlockBuilder, arguments: Sequence[Any]) -> Any:
    """The data with values written or added to places along some axes; None where TVM has to know.

    Args:
        builder: of the function.
        arguments: data, indices (None for all elements of an axis), values, whether they are added.
    """
    data, indices, values, accumulate = (*arguments, False)[:4]
    emit, found = builder.emit, _Places.of(builder, data, indices)
    if found is None or sizes_of(values) is None or not isinstance(accumulate, bool):
        return None
    shape = [*found.shape, *(found.sizes[axis] for axis in found.others)]
    values = emit(relax.op.broadcast_to(values, [shape[axis] for axis in found.order]))
    values = emit(relax.op.permute_dims(values, _inverse(found.order)))
    count, width = prod(found.shape), prod(shape[len(found.shape) :])
    rows = emit(relax.op.reshape(found.numbers, (count, 1)))
    rows = emit(relax.op.broadcast_to(rows, (count, width)))
    flat = emit(relax.op.reshape(found.in_front(builder, data), (-1, width)))
    kind = "add" if accumulate else "update"
    values = emit(relax.op.reshape(values, (count, width)))
    made = emit(relax.op.scatter_elements(flat, rows, values, 0, kind))
    order = [*found.axes, *found.others]
    made = emit(relax.op.reshape(made, [found.sizes[axis] for axis in order]))
    return emit(relax.op.permute_dims(made, _inverse(order)))


def put_where(builder: relax.BlockBuilder, arguments: Sequence[Any]) -> Any:
    """The data with one value, or one for each of the other axes, where a mask holds, as `x[x > 0] = 0`.

    None where the index is no mask, or each place that the mask holds at has a value of its own.

    Args:
        builder: of the function.
        arguments: see `index_put`.
    """
    data, indices, values, accumulate = (*arguments, False)[:4]
    given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
    sizes, own = sizes_of(data), sizes_of(values)
    if len(given) != 1 or str(given[0][1].ty.dtype) != "bool" or sizes is None or own is None:
        return None
    (axis, mask), emit = given[0], builder.emit
    covered = sizes_of(mask)
    if covered is None or not covered:
        return None
    behind = len(sizes) - axis - len(covered)
    # The places that the mask holds at are one axis of the values.
    own = [1] * (axis + 1 + behind - len(own)) + own
    if own[axis] != 1:
        return None
    values = emit(relax.op.reshape(values, own[:axis] + [1] * len(covered) + own[axis + 1 :]))
    mask = emit(relax.op.reshape(mask, [1] * axis + covered + [1] * behind))
    if accumulate:
        values = emit(relax.op.add(data, values))
    return emit(relax.op.where(mask, values, data))


def masked_scatter(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """The data with the elements of the source, one after another, where the mask holds.

    Data and mask broadcast to one shape.
    """
    data, mask, source, emit, op = given["self"], given["mask"], given["source"], builder.emit, relax.op
    sizes = list(node.meta["val"].shape)
    if not sizes or any(sizes_of(one) is None for one in (data, mask, source)):
        return None
    data, mask = (emit(op.broadcast_to(one, sizes)) for one in (data, mask))
    flat = emit(op.astype(emit(op.reshape(mask, (-1,))), "int64"))
    number = emit(op.subtract(emit(op.cumsum(flat, 0)), relax.const(1, "int64")))
    taken = emit(op.take(emit(op.reshape(source, (-1,))), number, 0, mode="clip"))
    return emit(op.where(mask, emit(op.reshape(taken, sizes)), data))


def strided(builder: relax.BlockBuilder, node: fx.Node, given: Mapping[str, Any]) -> Any:
    """Elements of a whole tensor at steps of their own along each axis, as overlapping frames are made."""
    data, sizes, offset = given["self"], sizes_of(given["self"]), given["storage_offset"] or 0
    shape, steps = given["size"], given["stride"]
    whole = all(isinstance(one, int) for one in (*shape, *steps, offset))
    stored = node.args[0].meta["val"]
    if not sizes or not whole or not stored.is_contiguous() or stored.storage_offset():
        return None
    numbers = np.full(shape, offset, np.int64)
    for axis, (size, step) in enumerate(zip(shape, steps, strict=True)):
        places = np.arange(size) * step
        numbers += places.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    flat = builder.emit(relax.op.reshape(data, (prod(sizes),)))
    return builder.emit(relax.op.take(flat, relax.const(numbers, "int64"), 0, mode="clip"))


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(axis) for axis in range(len(order))]


@dataclass(frozen=True, eq=False)
class _Places:
    """Numbers along some axes of a tensor, which count from the end below 0, as NumPy has it.

    Several tensors of numbers are taken together. What they broadcast to stands in place of their axes where
    these are neighbours, else first.

    Attributes:
        sizes: of the tensor.
        axes: that are indexed.
        shape: that the numbers broadcast to.
        numbers: of places in the indexed axes as one, int64.
    """

    sizes: list[int]
    axes: list[int]
    shape: list[int]
    numbers: Any

    @classmethod
    def of(cls, builder: relax.BlockBuilder, data: Any, given: Sequence[Any]) -> _Places | None:
        """None where a size is no number, or an index is a truth value."""
        indices = {axis: one for axis, one in enumerate(given) if one is not None}
        sizes, axes = sizes_of(data), list(indices)
        whole = all(str(one.ty.dtype) in ("int64", "int32") for one in indices.values())
        if sizes is None or not whole or any(sizes_of(one) is None for one in indices.values()):
            return None
        numbers: Any = None
        for axis, index in indices.items():
            own = from_start(builder, index, sizes[axis])
            if numbers is not None:
                before = builder.emit(relax.op.multiply(numbers, relax.const(sizes[axis], "int64")))
                own = builder.emit(relax.op.add(before, own))
            numbers = own
        shape = sizes_of(numbers)
        return None if shape is None else cls(sizes, axes, shape, numbers)

    @property
    def others(self) -> list[int]:
        """The axes that are not indexed."""
        return [axis for axis in range(len(self.sizes)) if axis not in self.axes]

    @property
    def first(self) -> int:
        """How many axes stand before those of the numbers in the result."""
        neighbours = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        return self.axes[0] if neighbours else 0

    @property
    def order(self) -> list[int]:
        """The axes of the result, of a tensor that has those of the numbers in front."""
        rank, first = len(self.shape), self.first
        behind = range(rank + first, rank + len(self.others))
        return [*range(rank, rank + first), *range(rank), *behind]

    def in_front(self, builder: relax.BlockBuilder, data: Any) -> Any:
        """The tensor with its indexed axes as one, in front."""
        moved = builder.emit(relax.op.permute_dims(data, [*self.axes, *self.others]))
        shape = [prod(self.sizes[axis] for axis in self.axes), *(self.sizes[axis] for axis in self.others)]
        return builder.emit(relax.op.reshape(moved, shape))


def from_start(builder: relax.BlockBuilder, index: Any, size: int) -> Any:
    """Numbers of places along an axis of this size that count from the start, as int64."""
    if isinstance(index, tvm.ir.GenericConst):
        numbers = index.value.numpy().astype(np.int64)
        return relax.const(np.where(numbers < 0, numbers + size, numbers), "int64")
    index = builder.emit(relax.op.astype(index, "int64"))
    behind = builder.emit(relax.op.add(index, relax.const(size, "int64")))
    negative = builder.emit(relax.op.less(index, relax.const(0, "int64")))
    return builder.emit(relax.op.where(negative, behind, index))
