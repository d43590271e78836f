"""Reads a workload off an unscheduled TensorIR function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.analysis import undefined_vars

from host.errors import LoweringError, ScheduleError
from host.lowering.script import WHOLE
from host.lowering.types import numeric_type
from host.schedules.workload import Access, Axis, Move, Stage, Workload
from host.tensor_ir.bands import BANDS, PART

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
# Intrinsics that lower to data movement or selection; every other call is arithmetic.
_FREE_CALLS = {"prim.if_then_else", "prim.likely", "prim.reinterpret", "prim.bitwise_and", "prim.shift_right"}
_REDUCE, _OPAQUE = 2, 4  # tirx.IterVar.CommReduce, tirx.IterVar.Opaque


def analyse(function: tirx.PrimFunc) -> Workload:
    """The stages of a function and the one that decides its structure.

    Raises:
        ScheduleError: the function has a block that is not a plain loop nest over one output (sorts,
            scatters, loops with data-dependent bounds).
    """
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}), error_render_level="none")
    arguments = {parameter.name for parameter in function.params}
    try:
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    except s_tir.ScheduleError as error:
        raise ScheduleError(f"{_only_block(function)} is not a loop nest") from error
    if len(blocks) == 1 and BANDS in schedule.get(blocks[0]).annotations:
        return _in_bands(schedule, blocks[0])
    inner, steps = _inside_of_steps(schedule, blocks)
    stages = [_stage(schedule, block, arguments) for block in inner]
    if not stages:
        raise ScheduleError("the function has no blocks; it is left as it is")
    return Workload(tuple(stages), _anchor(stages), steps)


def _in_bands(schedule: s_tir.Schedule, band: Any) -> Workload:
    """The parts of a chain: each is a workload whose arguments are its views of the chain's buffers."""
    parts = []
    for block in schedule.get_child_blocks(band):
        part = schedule.get(block)
        if PART in part.annotations:
            views = {view.buffer.name for view in part.match_buffers}
            stages = [_stage(schedule, one, views) for one in schedule.get_child_blocks(block)]
            parts.append(Workload(tuple(stages), _anchor(stages)))
    stages = [stage for part in parts for stage in part.stages]
    count = int(schedule.get(band).annotations[BANDS])
    return Workload(tuple(stages), _anchor(stages), parts=tuple(parts), bands=count)


def _inside_of_steps(schedule: s_tir.Schedule, blocks: Sequence[Any]) -> tuple[list[Any], int]:
    """The blocks, with those in a loop over steps in its place, and the number of steps, 0 without a loop."""
    found: list[Any] = []
    steps = 0
    for block in blocks:
        variables = schedule.get(block).iter_vars
        if any(variable.iter_type != _OPAQUE for variable in variables):
            found.append(block)
            continue
        try:
            children, within = _inside_of_steps(schedule, schedule.get_child_blocks(block))
        except s_tir.ScheduleError:
            children, within = [], 0
        count = math.prod(_extent(variable) for variable in variables)
        steps = max(steps, within, count if children and variables else 0)
        found += children or [block]
    return found, steps


def _extent(variable: tirx.IterVar) -> int:
    return int(variable.dom.extent) if isinstance(variable.dom.extent, tirx.IntImm) else 0


def _only_block(function: tirx.PrimFunc) -> str:
    """The name of a function's single opaque block, which takes the place of the root."""
    block = getattr(function.body, "block", None)
    return f"block {block.name_hint}" if block is not None else "the function"


def _anchor(stages: list[Stage]) -> int:
    contractions = [i for i, s in enumerate(stages) if s.kind == "contraction"]
    reductions = [i for i, s in enumerate(stages) if s.kind == "reduction"]
    for group in (contractions, reductions):
        if group:
            return max(group, key=lambda i: stages[i].points)
    return len(stages) - 1


def _whole(block: tirx.SBlock, arguments: set[str]) -> Stage:
    """A block whose inside only its own rule knows: the buffers that it declares, each read as one."""
    axes = tuple(Axis(one.var.name, _extent(one), one.iter_type == _REDUCE) for one in block.iter_vars)

    def access(region: tvm.ir.TensorRegion) -> Access:
        buffer = region.source
        shape = tuple(int(extent) for extent in buffer.shape)
        kind = numeric_type(str(buffer.dtype))
        return Access(buffer.name, kind, shape, ((),) * len(axes), buffer.name in arguments, True)

    # A schedule wants no buffer among both, so that one which is read and changed stands among the writes.
    *changed, result = (access(region) for region in block.writes)
    reads = (*(access(region) for region in block.reads), *changed)
    texts = ((str(name), value) for name, value in block.annotations.items())
    stated = tuple((name, str(value)) for name, value in texts if isinstance(value, str))
    return Stage(block.name_hint, axes, reads, result, "whole", 0.0, False, stated=stated)


def _stage(schedule: s_tir.Schedule, block_rv: object, arguments: set[str]) -> Stage:
    block = schedule.get(block_rv)
    if WHOLE in block.annotations:
        return _whole(block, arguments)
    loops = schedule.get_loops(block_rv)
    if len(block.writes) != 1 or len(loops) != len(block.iter_vars):
        raise ScheduleError(f"block {block.name_hint} is not a plain loop nest over one output")
    if not isinstance(block.body, tirx.BufferStore):
        raise ScheduleError(f"block {block.name_hint} has a body that is not one store")
    axes = []
    for variable in block.iter_vars:
        extent = variable.dom.extent
        if not isinstance(extent, tirx.IntImm):
            raise ScheduleError(f"block {block.name_hint} has a symbolic extent")
        axes.append(Axis(variable.var.name, int(extent), variable.iter_type == _REDUCE))
    variables = [variable.var for variable in block.iter_vars]
    store = block.body
    loads = _loads(store.value, store.buffer)
    reads = tuple(_access(load.source, load.indices, variables, axes, arguments) for load in loads)
    write = _access(store.buffer, store.indices, variables, axes, arguments)
    flops, expensive = _arithmetic(store.value)
    kind, conditional = _kind(block, axes, store), _conditional(store.value)
    fill = _fill(store.value) if kind == "padding" else None
    plain = kind == "contraction" and _adds_elements(store.value)
    return Stage(block.name_hint, tuple(axes), reads, write, kind, flops, expensive, conditional, fill, plain)


def _loads(value: tirx.PrimExpr, written: tirx.Buffer) -> list[tvm.ir.TensorLoad]:
    found: list[tvm.ir.TensorLoad] = []

    def visit(node: tvm.ir.TensorLoad) -> None:
        if not node.source.same_as(written):
            found.append(node)

    tvm_ffi.structural_walk(value, (tvm.ir.TensorLoad, visit), order="post")
    return found


def _kind(block: tirx.SBlock, axes: list[Axis], store: tirx.BufferStore) -> str:
    if any(axis.reduce for axis in axes) and block.init is not None:
        value = store.value
        product = isinstance(value, tirx.Add) and isinstance(_unwrapped(value.b), tirx.Mul)
        return "contraction" if product else "reduction"
    return "padding" if _is_condition(store.value) else "injective"


def _adds_elements(value: Any) -> bool:
    """Whether what a contraction adds is a product of two elements, perhaps converted."""
    factors = _unwrapped(value.b)
    return all(isinstance(_unwrapped(factor), tvm.ir.TensorLoad) for factor in (factors.a, factors.b))


def _is_condition(value: object) -> bool:
    return isinstance(value, tvm.ir.Call) and value.op.name == "prim.if_then_else"


def _fill(value: Any) -> float | None:
    """What a padding stage writes where its condition does not hold, if that is a number."""
    other = value.args[2]
    return float(other.value) if isinstance(other, tirx.FloatImm | tirx.IntImm) else None


def _conditional(value: tirx.PrimExpr) -> bool:
    calls: list[tvm.ir.Call] = []
    tvm_ffi.structural_walk(value, (tvm.ir.Call, calls.append), order="post")
    return any(_is_condition(call) for call in calls)


def _unwrapped(value: tirx.PrimExpr) -> tirx.PrimExpr:
    while isinstance(value, tirx.Cast):
        value = value.value
    return value


def _arithmetic(value: tirx.PrimExpr) -> tuple[float, bool]:
    """Floating-point operations of one evaluation, and whether a transcendental function is among them."""
    count = 0.0
    expensive = False

    def visit(node: object) -> None:
        nonlocal count, expensive
        if isinstance(node, _ARITHMETIC) and str(node.ty).startswith(("float", "bfloat")):
            count += 1
        elif isinstance(node, tvm.ir.Call) and node.op.name not in _FREE_CALLS and "float" in str(node.ty):
            count += 10
            expensive = True

    tvm_ffi.structural_walk(value, (tvm.ir.Expr, visit), order="post")
    return count, expensive or count >= 8


def _access(
    buffer: tirx.Buffer,
    indices: list[tirx.PrimExpr],
    variables: list[tirx.Var],
    axes: list[Axis],
    arguments: set[str],
) -> Access:
    try:
        elements = numeric_type(str(buffer.dtype))
    except LoweringError as error:
        raise ScheduleError(f"buffer {buffer.name} holds elements of type {buffer.dtype}") from error
    shape = tuple(int(extent) for extent in buffer.shape)
    moves = _moves(indices, variables, axes)
    if moves is None:
        still, along = ((),) * len(axes), _along_last(indices, variables)
        leading = _leading(indices, variables)
        return Access(buffer.name, elements, shape, still, buffer.name in arguments, True, (), along, leading)
    origin = tuple(_evaluate(index, variables, {}) or 0 for index in indices)
    return Access(buffer.name, elements, shape, moves, buffer.name in arguments, False, origin)


def _leading(indices: list[tirx.PrimExpr], variables: list[tirx.Var]) -> int:
    """How many leading axes are the indices of as many dimensions."""
    same = (index.same_as(variable) for index, variable in zip(indices, variables, strict=False))
    return sum(itertools.takewhile(bool, same))


def _along_last(indices: list[tirx.PrimExpr], variables: list[tirx.Var]) -> bool:
    """Whether the last axis is the last index, and decides no other one."""
    if not indices or not variables or not indices[-1].same_as(variables[-1]):
        return False
    used = [found for index in indices[:-1] for found in undefined_vars(index)]
    return not any(found.same_as(variables[-1]) for found in used)


def _moves(
    indices: list[tirx.PrimExpr], variables: list[tirx.Var], axes: list[Axis]
) -> tuple[tuple[Move, ...], ...] | None:
    """How each axis moves through the dimensions; None if an index depends on data."""

    def position(axis: int, iteration: int) -> tuple[int, ...] | None:
        values = [_evaluate(index, variables, {axis: iteration}) for index in indices]
        return None if any(value is None for value in values) else tuple(value or 0 for value in values)

    found = []
    for number, axis in enumerate(axes):
        origin = position(number, 0)
        if origin is None:
            return None
        moves: list[Move] = []
        every = 1
        # A linear index, which is the usual one, is known by its last iteration.
        while every < axis.extent:
            there = position(number, every) or origin
            steps = tuple(b - a for a, b in zip(origin, there, strict=True))
            moves.append(Move(every, -(-axis.extent // every), steps))
            last = axis.extent - every
            if position(number, last) == _predicted(origin, moves, last):
                break
            starts = range(2 * every, axis.extent, every)
            broken = (n for n in starts if position(number, n) != _predicted(origin, moves, n))
            every = next(broken, axis.extent)
            moves[-1] = replace(moves[-1], count=-(-every // moves[-1].every))
        found.append(tuple(moves))
    return tuple(found)


def _predicted(origin: tuple[int, ...], moves: list[Move], iteration: int) -> tuple[int, ...]:
    """The indices that an access has at an iteration, by the moves found so far."""
    reached = list(origin)
    rest = iteration
    for move in reversed(moves):
        count, rest = divmod(rest, move.every)
        for dim, step in enumerate(move.steps):
            reached[dim] += step * count
    return tuple(reached)


_BINARY: dict[type, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b,
    tirx.FloorMod: lambda a, b: a % b,
    tirx.Min: min,
    tirx.Max: max,
}


def _evaluate(index: tvm.ir.Expr, variables: list[tirx.Var], steps: dict[int, int]) -> int | None:
    """The integer value of an index expression at one point; None if it depends on data."""
    if isinstance(index, tirx.IntImm):
        return int(index.value)
    for position, variable in enumerate(variables):
        if index.same_as(variable):
            return steps.get(position, 0)
    if isinstance(index, tirx.Cast):
        return _evaluate(index.value, variables, steps)
    combine = _BINARY.get(type(index))
    if combine is None:
        return None
    a, b = _evaluate(index.a, variables, steps), _evaluate(index.b, variables, steps)
    return None if a is None or b is None else combine(a, b)
