"""A correct program for any function on a GPU: what a task gets that no rule of the space takes."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import s_tir, tirx

from host.errors import BuildError

_THREADS = 128
_SPATIAL = 0  # tirx.IterVar.DataPar
# What TVM raises for a step that it cannot take; its ScheduleError is a RuntimeError.
_REFUSALS = (RuntimeError, ValueError)


def default_schedule_gpu(function: tirx.PrimFunc, name: str) -> tirx.PrimFunc:
    """Run every stage as a kernel of its own: its independent loops over blocks and threads, sums in order.

    Stages that TVM cannot show to be independent run in one thread.

    Args:
        function: unscheduled.
        name: for messages.

    Raises:
        BuildError: a stage cannot be put on the GPU at all.
    """
    try:
        schedule = s_tir.Schedule(tvm.IRModule({"main": function}), error_render_level="none")
        root = schedule.get_sblock("root")
        names = [schedule.get(block).name_hint for block in schedule.get_child_blocks(root)]
    except _REFUSALS as error:
        raise BuildError(f"kernel {name}: it has no stages that a GPU could run") from error
    for stage in names:
        copy = schedule.copy()
        try:
            _spread(copy, stage)
            schedule = copy
        except _REFUSALS:
            _alone(schedule, stage, name)
    scheduled: tirx.PrimFunc = schedule.mod["main"]
    return scheduled


def _spread(schedule: s_tir.Schedule, stage: str) -> None:
    """Binds the independent loops of a stage."""
    block = schedule.get_sblock(stage)
    loops = list(schedule.get_loops(block))
    kinds = [axis.iter_type for axis in schedule.get(block).iter_vars]
    if len(kinds) != len(loops):
        raise ValueError("the loops are not the axes")
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == _SPATIAL]
    others = [loop for loop in loops if loop not in spatial]
    if not spatial:
        spatial = [schedule.add_unit_loop(loops[0] if loops else block)]
    schedule.reorder(*spatial, *others)
    fused = schedule.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    extent = schedule.get(fused).extent
    # One that a length decides has a last block with threads that do nothing.
    short = isinstance(extent, tirx.IntImm) and int(extent) < _THREADS
    outer, inner = schedule.split(fused, [None, math.gcd(int(extent), _THREADS) if short else _THREADS])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")


def _alone(schedule: s_tir.Schedule, stage: str, name: str) -> None:
    """Run a stage without loops of its own in one thread of the GPU."""
    try:
        block: Any = schedule.get_sblock(stage)
        loops = list(schedule.get_loops(block))
        unit = schedule.add_unit_loop(loops[0] if loops else block)
        schedule.bind(unit, "threadIdx.x")
    except _REFUSALS as error:
        raise BuildError(f"kernel {name}: its stage {stage} cannot run on a GPU") from error
