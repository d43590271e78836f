"""The operands and sizes of an attention, read off its workload.

Rows are those of queries and of the result, columns those of keys and values; `batch` has the axes before
them: sequences and heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from host.lowering.attention.matrices import CAUSAL, MASKED, MIXED, SCORES
from host.schedules.cuda.sources import CHUNK_BYTES, neighbours
from host.schedules.workload import Access, Stage, Workload

# Elements of a chunk, and elements of a head that one instruction multiplies.
CHUNK = CHUNK_BYTES // 2
UNIT = 16
# Elements of a head at most: more do not fit the registers.
_MOST_SIZE = 128
# Fewer bytes are not copied by `cp.async`, nor stored together.
_LEAST_BYTES = 4


@dataclass(frozen=True)
class Operand:
    """A tensor as the kernel reads or writes it.

    Attributes:
        access: of the argument.
        axes: the axis of the access for each logical index: those of the batch, then row and element.
        width: neighbouring elements that are read or written together; 1 where they lie apart.
    """

    access: Access
    axes: tuple[int, ...]
    width: int

    def place(self, logical: Sequence[Any]) -> list[Any]:
        """The index of an element by its logical indices."""
        index: list[Any] = list(self.access.origin)
        for axis, value in zip(self.axes, logical, strict=True):
            for dim, step in (pair for move in self.access.moves[axis] for pair in move.moved):
                index[dim] = index[dim] + value * step
        return index

    def moves_with(self, position: int) -> bool:
        """Whether a logical index moves it."""
        return any(move.moved for move in self.access.moves[self.axes[position]])


@dataclass(frozen=True)
class AttentionShape:
    """The sizes and operands of a function.

    Attributes:
        batch: extents of the axes before rows.
        rows: of queries.
        columns: keys.
        depth: elements of a query and of a key.
        width: elements of a value.
        query, key, value, output: operands.
        mask: what is added to scores; None without one.
        causal: whether a row sees columns up to one that moves with the row.
    """

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    width: int
    query: Operand
    key: Operand
    value: Operand
    output: Operand
    mask: Operand | None
    causal: bool

    @property
    def heads(self) -> int:
        """Independent attentions: heads of all sequences."""
        return math.prod(self.batch)

    @property
    def depth_units(self) -> int:
        """Instructions along the elements of a query."""
        return -(-self.depth // UNIT)

    @property
    def width_units(self) -> int:
        """Pairs of instructions along the elements of a value."""
        return -(-self.width // UNIT)

    @property
    def is_masked(self) -> bool:
        """Whether scores are scaled before their maximum, as a mask wants."""
        return self.mask is not None or self.causal


@lru_cache(maxsize=256)
def attention_of(workload: Workload) -> AttentionShape | None:
    """The attention that a workload is; None if it is none, or one that the kernel does not compute."""
    stages = {stage.name: stage for stage in workload.stages}
    if SCORES not in stages or MIXED not in stages:
        return None
    scores, mixed, last = stages[SCORES], stages[MIXED], workload.stages[-1]
    masked = stages.get(CAUSAL) or stages[MASKED]
    rank = len(scores.axes) - 3
    heads = tuple(range(rank))
    row, column, element = rank, rank + 1, rank + 2
    query, key = scores.reads
    value = next(access for access in mixed.reads if access.argument)
    masks = [access for access in masked.reads if access.argument]
    outputs = _of_result(last, mixed, rank)
    if len(masks) > 1 or outputs is None:
        return None
    operands = [
        _operand(scores, query, (*heads, row, element)),
        _operand(scores, key, (*heads, column, element)),
        # The axes of the product with values: batch, row, element of a value, column.
        _operand(mixed, value, (*heads, rank + 2, rank + 1)),
    ]
    accesses = (query, key, value, *masks)
    depth, width = scores.axes[element].extent, mixed.axes[rank + 1].extent
    if any(one.data_dependent or any(len(moves) > 1 for moves in one.moves) for one in accesses):
        return None
    if not UNIT <= min(depth, width) <= max(depth, width) <= _MOST_SIZE:
        return None
    if any(one.type.name not in ("float16", "float32") for one in accesses):
        return None
    return AttentionShape(
        batch=tuple(scores.axes[axis].extent for axis in heads),
        rows=scores.axes[row].extent,
        columns=scores.axes[column].extent,
        depth=depth,
        width=width,
        query=operands[0],
        key=operands[1],
        value=operands[2],
        output=outputs,
        mask=_operand(masked, masks[0], (*heads, row, column)) if masks else None,
        causal=masked.name == CAUSAL,
    )


def _operand(stage: Stage, access: Access, axes: tuple[int, ...]) -> Operand:
    width = neighbours(stage, access, axes[-1]) if access.type.name == "float16" else 1
    return Operand(access, axes, width if width * access.element_bytes >= _LEAST_BYTES else 1)


def _of_result(last: Stage, mixed: Stage, rank: int) -> Operand | None:
    """The result of the last stage by the logical indices of the product with values."""
    [read] = [access for access in last.reads if access.buffer == mixed.write.buffer]
    axes: list[int] = []
    for dim in range(rank + 2):
        moving = [
            axis for axis, moves in enumerate(read.moves) if [move.moved for move in moves] == [((dim, 1),)]
        ]
        if len(moving) != 1:
            return None
        axes += moving
    written = last.write
    steps = [written.offset(axis, 1) for axis in axes]
    together = steps[-1] == 1 and not any(step % 2 for step in steps[:-1])
    paired = together and written.type.name == "float16" and mixed.axes[rank + 1].extent % 2 == 0
    return Operand(written, tuple(axes), 2 if paired else 1)
