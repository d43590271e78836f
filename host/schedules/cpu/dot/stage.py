"""Sums of products, seen as the processor's dot product sees them: one group is one element."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from host.lowering.types import BFLOAT16, DotProduct, dot_product, numeric_type
from host.schedules.workload import Access, Move, Stage, Workload
from targets import HardwareModel

# By bytes.
_INTEGERS = {4: "int32", 2: "int16"}


def dot_kind(stage: Stage, hardware: HardwareModel) -> str:
    """The processor's dot product that a stage is a sum of; "" without one."""
    kinds = (hardware.dot_product, BFLOAT16 if hardware.bfloat16 is not None else "")
    return next((kind for kind in kinds if kind and is_dot(stage, dot_product(kind))), "")


def is_dot(stage: Stage, dot: DotProduct) -> bool:
    """Whether the innermost reduction runs over groups that lie together in both operands of a product."""
    if stage.kind != "contraction" or len(stage.reduction) < 2 or len(stage.reads) != 2:
        return False
    last = len(stage.axes) - 1
    group = stage.axes[last]
    if not group.reduce or group.extent != dot.group or stage.write.element_bytes != 4:
        return False
    activations, weights = stage.reads
    if (activations.type.name, weights.type.name) != (dot.activations, dot.weights):
        return False
    return all(_grouped(access, last, dot.group) for access in stage.reads)


def _grouped(access: Access, last: int, group: int) -> bool:
    if access.strides[last] != 1 or access.shape[-1] % group:
        return False
    return all(move.steps[-1] % group == 0 for moves in access.moves[:last] for move in moves)


@lru_cache(maxsize=8)
def in_lanes(workload: Workload) -> Workload:
    """The workload with groups as the elements of its anchor, and without the loop over them.

    A dot product then counts as one multiply-add of 32-bit lanes, which is what it costs.
    """
    stages = list(workload.stages)
    anchor = stages[workload.anchor]
    group = anchor.axes[-1].extent
    stages[workload.anchor] = replace(
        anchor,
        axes=anchor.axes[:-1],
        reads=tuple(_in_lanes(access, group) for access in anchor.reads),
        write=replace(anchor.write, moves=anchor.write.moves[:-1]),
    )
    return Workload(tuple(stages), workload.anchor)


def _in_lanes(access: Access, group: int) -> Access:
    def in_lanes(move: Move) -> Move:
        return replace(move, steps=(*move.steps[:-1], move.steps[-1] // group))

    return replace(
        access,
        type=numeric_type(_INTEGERS[group * access.element_bytes]),
        shape=(*access.shape[:-1], access.shape[-1] // group),
        moves=tuple(tuple(in_lanes(move) for move in moves) for moves in access.moves[:-1]),
    )
