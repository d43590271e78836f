"""A correct and tolerable program for any function: what a task gets that no rule of the space takes.

Every step is tried on a copy and dropped where TVM refuses it, so that the result is at worst the
function as it came.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

# Iterations below which starting a parallel loop costs more than it saves.
_PARALLEL_MIN_ITERATIONS = 1 << 15
# Parallel chunks to aim at: enough for any small board, few enough that each is worth its start.
_PARALLEL_CHUNKS = 64
# Independent accumulators of a contraction: covers the latency of a fused multiply-add on any core.
_MAX_REGISTER_TILE = 8
# Terms of a sum up to which it is written out, as for the window of a depthwise convolution.
_MAX_UNROLLED_SUM = 16
# Vectors of partial results of a horizontal reduction, for the same reason.
_PARTIAL_VECTORS = 4
_MAX_INLINE_OPERATIONS = 8
_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.DataPar, CommReduce
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
# What TVM raises for a step that it cannot take; its ScheduleError is a RuntimeError.
_REFUSALS = (RuntimeError, ValueError)


@dataclass(frozen=True)
class _Axis:
    """One axis of a block: its extent, whether it is reduced, and its stride in each access.

    A stride of None means that it is not constant. The first access is the one written.
    """

    extent: int
    reduce: bool
    strides: tuple[int | None, ...]

    @property
    def contiguous(self) -> bool:
        """Whether a vector along this axis is one load or a broadcast in every access."""
        return all(stride in (0, 1) for stride in self.strides)


def default_schedule(function: tirx.PrimFunc, lanes: int) -> tirx.PrimFunc:
    """Inline what is cheap, keep sums in registers, vectorise inner loops, run outer ones in parallel.

    Args:
        function: unscheduled.
        lanes: fp32 elements of one vector register.

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
        schedule = _attempt(schedule, partial(_schedule_nest, name=name, lanes=lanes))
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


def _schedule_nest(schedule: s_tir.Schedule, name: str, lanes: int) -> None:
    block = schedule.get_sblock(name)
    statement = schedule.get(block)
    loops = list(schedule.get_loops(block))
    axes = _axes(statement, lanes)
    if axes is None or len(loops) != len(axes):
        return
    # Vectors of bool are not what memory holds (one byte each); LLVM does those itself.
    if _reduces(statement) and str(statement.writes[0].source.dtype) != "bool":
        # Where the channels are no multiple of the vector, weights are packed by part of it.
        for width in (lanes, lanes // 2, lanes // 4):
            narrow = _axes(statement, width) if width > 1 else None
            vector = _vector_axis(narrow) if narrow else None
            if narrow is not None and vector is not None:
                step = _horizontal if narrow[vector].reduce else _contraction
                step(schedule, block, loops, narrow, vector, width)
                return
    outer = [loop for loop, axis in zip(loops, axes, strict=True) if not axis.reduce]
    _parallel(schedule, outer, len(axes), math.prod(axis.extent for axis in axes))


def _contraction(
    schedule: s_tir.Schedule, block: Any, loops: list[Any], axes: list[_Axis], vector: int, lanes: int
) -> None:
    """Sum a tile of vectors in registers."""
    spatial = [i for i, axis in enumerate(axes) if not axis.reduce and i != vector]
    reduced = [loops[i] for i, axis in enumerate(axes) if axis.reduce]
    outer = [loops[i] for i in spatial]
    inner: list[Any] = []
    width = math.gcd(axes[vector].extent, lanes)
    vector_loop = loops[vector]
    if width > 1:
        tiles = axes[vector].extent // width
        tile = max(spatial, key=lambda i: _divisor(axes[i].extent), default=None)
        if tile is not None and _divisor(axes[tile].extent) >= _divisor(tiles):
            outside, inside = schedule.split(loops[tile], [None, _divisor(axes[tile].extent)])
            outer[spatial.index(tile)] = outside
            vector_outer, vector_loop = schedule.split(vector_loop, [None, width])
            outer.insert(_panel_position(axes, spatial, vector), vector_outer)
        else:
            vector_outer, inside, vector_loop = schedule.split(vector_loop, [None, _divisor(tiles), width])
            outer.insert(_panel_position(axes, spatial, vector), vector_outer)
        inner.append(inside)
    schedule.reorder(*outer, *reduced, *inner, vector_loop)
    if width > 1:
        schedule.unroll(inner[0])
        schedule.vectorize(vector_loop)
        if math.prod(axis.extent for axis in axes if axis.reduce) <= _MAX_UNROLLED_SUM:
            for loop in reduced:
                schedule.unroll(loop)
    # Before the split into initialisation and update: TVM proves independence of whole sums only.
    _parallel(schedule, outer, len(axes), math.prod(axis.extent for axis in axes))
    schedule.decompose_reduction(block, reduced[0])


def _panel_position(axes: list[_Axis], spatial: list[int], vector: int) -> int:
    """Where among the other outer loops the vector axis goes: outside where that saves traffic.

    The operand that varies along the vector axis is read once if that loop is outside, and the others
    as often as it runs; inside it is the other way round.
    """
    sizes = {True: 0, False: 0}
    panel = 0
    for access in range(1, len(axes[0].strides)):
        varies = axes[vector].strides[access] != 0
        size = math.prod(axis.extent for axis in axes if axis.strides[access] != 0)
        if varies and size > sizes[True]:
            panel = access
        sizes[varies] = max(sizes[varies], size)
    if sizes[True] <= sizes[False]:
        return len(spatial)
    repeating = [place for place, i in enumerate(spatial) if axes[i].strides[panel] == 0]
    return repeating[0] if repeating else len(spatial)


def _horizontal(
    schedule: s_tir.Schedule, block: Any, loops: list[Any], axes: list[_Axis], vector: int, lanes: int
) -> None:
    """Reduce a contiguous axis into vectors of partial results first."""
    width = math.gcd(axes[vector].extent, _PARTIAL_VECTORS * lanes)
    if width == 1:
        return
    _, inside = schedule.split(loops[vector], [None, width])
    sums = schedule.rfactor(inside, len(schedule.get(block).writes[0].region))
    # The partial sums' loops stand in the order of the original ones, the split axis as two.
    flags = [
        flag for i, axis in enumerate(axes) for flag in ([True, False] if i == vector else [axis.reduce])
    ]
    lane = vector + 1
    sum_loops = list(schedule.get_loops(sums))
    reduced = [loop for i, loop in enumerate(sum_loops) if flags[i]]
    spatial = [loop for i, loop in enumerate(sum_loops) if not flags[i] and i != lane]
    schedule.reorder(*spatial, *reduced, sum_loops[lane])
    schedule.vectorize(sum_loops[lane])
    outer = list(schedule.get_loops(block))[:-1]
    if outer:
        schedule.compute_at(sums, outer[-1], preserve_unit_loops=True)
        _parallel(schedule, outer, len(axes), math.prod(axis.extent for axis in axes))
    if reduced:
        schedule.decompose_reduction(sums, schedule.get_loops(sums)[-1 - len(reduced)])


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
    # The innermost loop of a plain nest stays as it is: it is the one that LLVM vectorises.
    if len(taken) == depth and len(taken) > 1:
        taken.pop()
    schedule.parallel(schedule.fuse(*taken) if len(taken) > 1 else taken[0])


def _axes(statement: tirx.SBlock, lanes: int) -> list[_Axis] | None:
    """The axes of a block with one store, or None for any other block."""
    store = statement.body
    if len(statement.writes) != 1 or not isinstance(store, tirx.BufferStore):
        return None
    for axis in statement.iter_vars:
        if not isinstance(axis.dom.extent, tirx.IntImm) or axis.iter_type not in (_SPATIAL, _REDUCE):
            return None
    accesses = [_strides(store.buffer, store.indices, statement.iter_vars, lanes)]

    def visit(load: tvm.ir.TensorLoad) -> None:
        if not load.source.same_as(store.buffer):
            accesses.append(_strides(load.source, load.indices, statement.iter_vars, lanes))

    tvm_ffi.structural_walk(store.value, (tvm.ir.TensorLoad, visit), order="post")
    axes = []
    for position, axis in enumerate(statement.iter_vars):
        strides = tuple(access[position] for access in accesses)
        axes.append(_Axis(int(axis.dom.extent), axis.iter_type == _REDUCE, strides))
    return axes


def _strides(buffer: Any, indices: Any, axes: list[Any], lanes: int) -> list[int | None]:
    """Elements that one step of each axis moves an access by, over the first `lanes` steps.

    A layout of blocks of `lanes` elements is contiguous in this sense. None where the step is not
    constant, or depends on data.
    """
    shape = [int(extent) for extent in buffer.shape]
    pitch = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]

    def offset(variable: Any, value: int) -> int:
        places = [_evaluate(index, variable, value) for index in indices]
        return sum(place * step for place, step in zip(places, pitch, strict=True))

    strides: list[int | None] = []
    for axis in axes:
        try:
            count = min(int(axis.dom.extent), max(lanes, 2))
            offsets = [offset(axis.var, value) for value in range(count)]
        except LookupError:
            strides.append(None)
            continue
        steps = {after - before for before, after in pairwise(offsets)}
        strides.append(steps.pop() if len(steps) == 1 else None if steps else 0)
    return strides


_INTEGER_OPERATIONS: dict[Any, Callable[[int, int], int]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
}


def _evaluate(index: Any, variable: Any, value: int) -> int:
    """An index with one variable set and all others zero.

    Raises:
        LookupError: it holds something else than integer arithmetic, such as data.
    """
    if isinstance(index, tirx.IntImm):
        return int(index)
    if isinstance(index, tirx.Var):
        return value if index.same_as(variable) else 0
    if isinstance(index, tirx.Cast):
        return _evaluate(index.value, variable, value)
    operation = _INTEGER_OPERATIONS[type(index)]
    return operation(_evaluate(index.a, variable, value), _evaluate(index.b, variable, value))


def _vector_axis(axes: list[_Axis]) -> int | None:
    """The axis to vectorise: written contiguously if there is one, else reduced contiguously."""
    candidates = [i for i, axis in enumerate(axes) if axis.extent > 1 and axis.contiguous]
    written = [i for i in candidates if not axes[i].reduce and axes[i].strides[0] == 1]
    summed = [i for i in candidates if axes[i].reduce]
    return next(iter([*written, *summed]), None)


def _divisor(extent: int) -> int:
    """The largest divisor that fits the register tile."""
    return max(d for d in range(1, _MAX_REGISTER_TILE + 1) if extent % d == 0)


def _reduces(statement: tirx.SBlock) -> bool:
    return statement.init is not None and any(axis.iter_type == _REDUCE for axis in statement.iter_vars)


def _points(statement: tirx.SBlock) -> int:
    return math.prod(int(axis.dom.extent) for axis in statement.iter_vars)


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
