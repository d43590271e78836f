"""A correct and tolerable program for any function: what a task gets that no rule of the space takes.

Every step is tried on a copy and dropped where TVM refuses it, so that the result is at worst the
function as it came.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

# Iterations below which starting a parallel loop costs more than it saves.
_PARALLEL_MIN_ITERATIONS = 1 << 15
# Parallel chunks to aim at: enough for any small board, few enough that each is worth its start.
_PARALLEL_CHUNKS = 64
_MAX_INLINE_OPERATIONS = 8
_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.DataPar, CommReduce
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
# What TVM raises for a step that it cannot take; its ScheduleError is a RuntimeError.
_REFUSALS = (RuntimeError, ValueError)


def default_schedule(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Inline what is cheap and run outer loops in parallel; LLVM vectorises plain inner loops.

    Args:
        function: unscheduled.

    Returns:
        A scheduled function; the given one where it cannot be scheduled at all.
    """
    try:
        schedule = s_tir.Schedule(tvm.IRModule({"main": function}), error_render_level="none")
        names = [schedule.get(block).name_hint for block in _blocks(schedule)]
    except _REFUSALS:
        return function
    for name in names:
        schedule = _attempt(schedule, partial(_inline, name=name))
    for block in _blocks(schedule):
        name = schedule.get(block).name_hint
        schedule = _attempt(schedule, partial(_share, name=name))
    scheduled: tirx.PrimFunc = schedule.mod["main"]
    if function.attrs is not None and "global_symbol" in function.attrs:
        return scheduled.with_attr("global_symbol", function.attrs["global_symbol"])
    return scheduled


def _blocks(schedule: s_tir.Schedule) -> list[Any]:
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def _attempt(schedule: s_tir.Schedule, step: Callable[[s_tir.Schedule], None]) -> s_tir.Schedule:
    copy = schedule.copy()
    try:
        step(copy)
    except _REFUSALS:
        return schedule
    return copy


def _inline(schedule: s_tir.Schedule, name: str) -> None:
    """Inline a producer whose values are used about once, or cost next to nothing."""
    block = schedule.get_sblock(name)
    statement = schedule.get(block)
    consumers = schedule.get_consumers(block)
    if not consumers or not isinstance(statement.body, tirx.BufferStore):
        return
    if any(axis.iter_type != _SPATIAL for axis in statement.iter_vars):
        return
    operations = _operations(statement.body.value)
    if operations > 0:
        reducing = any(_reduces(schedule.get(consumer)) for consumer in consumers)
        points = _points(statement)
        most = max(_points(schedule.get(consumer)) for consumer in consumers)
        if reducing or len(consumers) > 1 or operations > _MAX_INLINE_OPERATIONS or most > 2 * points:
            return
    schedule.compute_inline(block)


def _share(schedule: s_tir.Schedule, name: str) -> None:
    """Runs the outer loops of a nest in parallel; TVM refuses what is not independent."""
    block = schedule.get_sblock(name)
    statement = schedule.get(block)
    loops = list(schedule.get_loops(block))
    axes = statement.iter_vars
    known = all(
        isinstance(axis.dom.extent, tirx.IntImm) and axis.iter_type in (_SPATIAL, _REDUCE) for axis in axes
    )
    if known and len(loops) == len(axes):
        outer = [loop for loop, axis in zip(loops, axes, strict=True) if axis.iter_type == _SPATIAL]
        plain = isinstance(statement.body, tirx.BufferStore)
        work = 1 if plain else _touched(statement)
        _parallel(schedule, outer, len(axes) + (not plain), _points(statement) * work)


def _parallel(schedule: s_tir.Schedule, loops: list[Any], depth: int, iterations: int) -> None:
    """Run the outermost loops in parallel where the work is worth it."""
    if iterations < _PARALLEL_MIN_ITERATIONS or not loops:
        return
    chunks, taken = 1, []
    for loop in loops:
        taken.append(loop)
        chunks *= int(schedule.get(loop).extent)
        if chunks >= _PARALLEL_CHUNKS:
            break
    if chunks == 1:
        return
    # The innermost loop of a plain nest stays as it is: it is the one that LLVM vectorises.
    if len(taken) == depth and len(taken) > 1:
        taken.pop()
    schedule.parallel(schedule.fuse(*taken) if len(taken) > 1 else taken[0])


def _reduces(statement: tirx.SBlock) -> bool:
    return statement.init is not None and any(axis.iter_type == _REDUCE for axis in statement.iter_vars)


def _points(statement: tirx.SBlock) -> int:
    return math.prod(int(axis.dom.extent) for axis in statement.iter_vars)


def _touched(statement: tirx.SBlock) -> int:
    """Elements that one run of a block of several statements takes: the most that it reads or writes."""
    regions = [[part.extent for part in one.region] for one in (*statement.reads, *statement.writes)]
    known = [region for region in regions if all(isinstance(extent, tirx.IntImm) for extent in region)]
    return max((math.prod(int(extent) for extent in region) for region in known), default=1)


def _operations(value: Any) -> int:
    """Arithmetic operations of an expression, a call of a function counted as many."""
    count = 0

    def visit(node: Any) -> None:
        nonlocal count
        if isinstance(node, tvm.ir.Call):
            count += 0 if node.op.name in ("prim.reinterpret", "prim.likely") else _MAX_INLINE_OPERATIONS
        elif isinstance(node, _ARITHMETIC) and "float" in str(node.ty):
            count += 1

    tvm_ffi.structural_walk(value, (tvm.ir.Expr, visit), order="post")
    return count
