"""What the blocks of a task with rows compute: the element at a place of a row, and parts of a reduction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from host.schedules.cuda.epilogue import combination, replaced
from host.schedules.cuda.nest import digits
from host.tensor_ir.structural import mapped


@dataclass(frozen=True)
class Reduction:
    """A reduction along rows.

    Attributes:
        block: of the schedule, with what stands before it inlined.
        kind: what combines two parts.
    """

    block: s_tir.SBlock
    kind: type

    @property
    def result(self) -> tirx.Buffer:
        """What the block writes."""
        return self.block.body.buffer

    @property
    def dtype(self) -> str:
        """Of the results."""
        return str(self.result.dtype)

    def cleared(self, total: tirx.Buffer) -> tirx.Stmt:
        """Begins a total."""
        return tirx.BufferStore(total, self.block.init.value, [0])

    def added(self, total: tirx.Buffer, value: Any, place: Any = 0) -> tirx.Stmt:
        """Combines a total, or the one at a place, with a value."""
        return tirx.BufferStore(total, self.kind(tirx.BufferLoad(total, [place]), value), [place])


def kind_of(block: s_tir.SBlock) -> type:
    """What combines two parts of the reduction of a block.

    Raises:
        ValueError: it combines elements in another way than by a sum, a product, or the greatest or least.
    """
    return combination(block)[0]


def length_of(block: s_tir.SBlock, axes: int) -> int:
    """Iterations of a block along one row, of which the leading axes are the number."""
    return math.prod(int(axis.dom.extent) for axis in block.iter_vars[axes:])


def element(
    block: s_tir.SBlock, axes: int, place: tuple[Any, Any], known: Mapping[str, Any], lane: Any = 0
) -> tuple[Any, list[Any]]:
    """What a block computes at a place of a row, or adds up there, and the indices at which it goes.

    Args:
        block: of the schedule.
        axes: leading ones, which are the number of a row.
        place: the number of the row, and of an iteration along it.
        known: by the name of a buffer that another block writes, what stands in the place of a load of it.
        lane: what is added to the iteration along the innermost axis.
    """
    store = block.body
    value = store.value.b if block.init is not None else store.value

    def found(load: Any) -> Any:
        return known.get(load.source.name, load)

    variables = [axis.var for axis in block.iter_vars]
    extents = [int(axis.dom.extent) for axis in block.iter_vars]
    row, along = place
    values = [*digits(row, extents[:axes]), *digits(along, extents[axes:])]
    if len(values) > axes:
        values[-1] = values[-1] + lane
    computed = replaced(mapped(value, (tvm.ir.TensorLoad, found)), variables, values)
    return computed, [replaced(index, variables, values) for index in store.indices]
