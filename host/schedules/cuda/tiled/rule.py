"""Tiled reductions for GPUs: convolutions, matrix products, depthwise convolutions and pooling.

A block of `tx` x `ty` x `tz` threads computes a tile; each thread holds `cols` x `rows` x `rows2` sums in
registers, once for each of its `vx` x `vy` virtual threads, which lie interleaved so that neighbouring
threads read neighbouring banks. With `stage`, the block copies `depth` steps of both operands into shared
memory at once, with `halo` what all of a convolution's window reads; `steps` of them are written out.
Copies have room behind rows and planes so that no threads meet in a bank; where that does not help, the
decisions are illegal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import s_tir

from host.schedules.api import GPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import epilogue_names, inline_chain, prologue_names
from host.schedules.cuda.common import THREAD_AXES, copy_together
from host.schedules.cuda.multiprocessor import MANY_RESULTS, gpu_of, register_limit
from host.schedules.cuda.rowwise.rows import of_few_rows, row_axes
from host.schedules.cuda.tiled.copies import column_vector, layout, shared_bytes, turn_of
from host.schedules.cuda.tiled.cost import cuda_tiled_seconds
from host.schedules.cuda.tiled.roles import (
    CudaRoles,
    block_of,
    cuda_roles,
    fetch_width,
    registers,
    staged_tile,
)
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Bound on multiply-adds written out one after the other: code beyond it leaves the instruction cache.
_LARGEST_CODE = 512
# Bound on the axes that one copy has loops for.
_MOST_THREADS_Z = 64


class CudaTiled(Rule):
    """A tile of sums in the registers of each thread, operands in shared memory."""

    name = "cuda_tiled"
    processor = GPU
    version = 5
    priority = 10
    # An axis is divided among threads, virtual threads and sums of a thread.
    coupled = True
    sized_tiles = True
    decisions = (
        DecisionKind("cols", Level.REGISTER, WordClass.TILE),
        DecisionKind("rows", Level.REGISTER, WordClass.TILE),
        DecisionKind("rows2", Level.REGISTER, WordClass.TILE, interleaves=True),
        DecisionKind("tx", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("ty", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("tz", Level.BLOCK, WordClass.PARALLEL),
        DecisionKind("vx", Level.BLOCK, WordClass.TILE, interleaves=True),
        DecisionKind("vy", Level.BLOCK, WordClass.TILE, interleaves=True),
        DecisionKind("stage", Level.BLOCK, WordClass.SWITCH),
        DecisionKind("depth", Level.BLOCK, WordClass.TILE),
        DecisionKind("steps", Level.BLOCK, WordClass.UNROLL),
        DecisionKind("halo", Level.BLOCK, WordClass.SWITCH),
        DecisionKind("fetch", Level.BLOCK, WordClass.SWITCH),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A reduction whose result lies in order in memory, plain stages around it."""
        anchor = workload.anchor_stage
        if hardware.gpu is None or anchor.kind not in ("contraction", "reduction"):
            return False
        others = [s for i, s in enumerate(workload.stages) if i != workload.anchor]
        if any(s.kind not in ("injective", "padding") for s in others):
            return False
        # Threads that share the rows of a mean or a norm are the rule for rows'.
        if of_few_rows(workload, MANY_RESULTS * hardware.gpu.multiprocessors):
            return False
        roles = cuda_roles(anchor)
        if roles is None or not all(access.shape for access in anchor.reads):
            return False
        # Along the columns neighbouring threads read neighbours, or all the same element, or bytes for tensor
        # cores of which a few of each column lie together.
        near = [(0, 1) if a.element_bytes > 1 else (0, 1, 4, 8, 16) for a in anchor.reads]
        if anchor.kind == "contraction" and row_axes(workload) is None:
            # Or a run of memory is a column's own: its channels, or all that it has of the weights.
            depth = anchor.axes[roles.depth].extent
            own = (depth, depth * math.prod(anchor.axes[axis].extent for axis in roles.window))
            near = [(*steps, *own) for steps in near]
        found = zip(anchor.reads, near, strict=True)
        return all(not a.data_dependent and a.strides[roles.column] in steps for a, steps in found)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Threads, sums of each thread, interleave, staging and unrolling."""
        anchor = workload.anchor_stage
        roles = _roles(anchor)
        rows = anchor.axes[roles.row].extent if roles.row is not None else 1
        seconds = anchor.axes[roles.second].extent if roles.second is not None else 1
        depth = anchor.axes[roles.depth].extent
        depths = tuple(size for size in range(1, min(depth, 64) + 1) if depth % size == 0)
        window = any(anchor.axes[axis].extent > 1 for axis in roles.window)
        both = anchor.kind == "contraction"
        return {
            "cols": _column_sizes(anchor, roles, 8),
            "rows": _sizes(rows, 8),
            "rows2": _sizes(seconds, 4),
            "tx": _column_sizes(anchor, roles, 128),
            "ty": _sizes(rows, 32),
            "tz": _sizes(seconds, 16),
            "vx": _column_sizes(anchor, roles, 4),
            "vy": _sizes(rows, 8),
            "stage": (0, 1) if both else (0,),
            "depth": depths,
            "steps": tuple(size for size in (1, 2, 4, 8) if depth % size == 0),
            "halo": (0, 1) if window and both else (0,),
            "fetch": (1, 2, 4) if both else (1,),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Threads, registers and shared memory are within the GPU's; tiles fit; no threads meet in a bank."""
        anchor, gpu = workload.anchor_stage, gpu_of(hardware)
        roles, block = _roles(anchor), block_of(values)
        if not 1 <= block.threads <= gpu.threads_per_block or values["tz"] > _MOST_THREADS_Z:
            return False
        if not _fits(anchor, roles, values):
            return False
        if not values["stage"] and (values["halo"] or values["fetch"] > 1):
            return False
        if values["depth"] % values["steps"] or block.sums * values["steps"] > _LARGEST_CODE:
            return False
        if registers(anchor, values) > register_limit(gpu, block.threads):
            return False
        if values["stage"] and any(layout(anchor, roles, access, values) is None for access in anchor.reads):
            return False
        return shared_bytes(anchor, roles, values) <= gpu.shared_per_block

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Tiles the anchor over blocks and threads, stages its operands and moves the other stages in."""
        schedule, anchor = sampler.schedule, workload.anchor_stage
        block = schedule.get_sblock(anchor.name)
        tails = inline_chain(schedule, epilogue_names(workload))
        if tails:
            schedule.set_scope(block, 0, "local")
        else:
            tails = [schedule.get(schedule.cache_write(block, 0, "local")).name_hint]
        copies = []
        if sampler.value("stage"):
            copies = [schedule.cache_read(block, i, "shared") for i in range(len(anchor.reads))]
        for name in prologue_names(workload):
            schedule.compute_inline(schedule.get_sblock(name))
        nest = _Nest(sampler, anchor, _roles(anchor), block)
        for name in tails:
            schedule.reverse_compute_at(schedule.get_sblock(name), nest.thread)
            _vectorise_store(schedule, schedule.get_sblock(name))
        for position, copy in enumerate(copies):
            nest.place(copy, position)
        schedule.decompose_reduction(block, nest.first_reduction)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return cuda_tiled_seconds(workload, hardware, values)


class _Nest:
    """Splits, orders and binds the loops of the anchor.

    Attributes:
        thread: the innermost loop over threads; inside it a thread is alone.
        first_reduction: the outermost reduction loop.
    """

    def __init__(self, sampler: Sampler, anchor: Stage, roles: CudaRoles, block: Any) -> None:
        self._schedule = schedule = sampler.schedule
        self._sampler, self._anchor, self._roles = sampler, anchor, roles
        loops = schedule.get_loops(block)
        column = schedule.split(loops[roles.column], [None, *map(sampler.sample, ("vx", "tx", "cols"))])
        row_loop = loops[roles.row] if roles.row is not None else schedule.add_unit_loop(column[0])
        row = schedule.split(row_loop, [None, *map(sampler.sample, ("vy", "ty", "rows"))])
        second_loop = loops[roles.second] if roles.second is not None else schedule.add_unit_loop(column[0])
        second = schedule.split(second_loop, [None, *map(sampler.sample, ("tz", "rows2"))])
        depth, inner = schedule.split(loops[roles.depth], [None, sampler.sample("depth")])
        inner, steps = schedule.split(inner, [None, sampler.sample("steps")])
        window = [loops[axis] for axis in roles.window]
        reduction = [depth, *window] if sampler.value("halo") else [*window, depth]
        blocks = [*(loops[axis] for axis in roles.outer), second[0], row[0], column[0]]
        virtual = [row[1], column[1]]
        threads = [second[1], row[2], column[2]]
        tile = [second[2], row[3], column[3]]
        schedule.reorder(*blocks, *virtual, *threads, *reduction, inner, steps, *tile)
        schedule.bind(schedule.fuse(*blocks), "blockIdx.x")
        for loop, axis in zip(virtual, ("vthread.y", "vthread.x"), strict=True):
            schedule.bind(loop, axis)
        for loop, axis in zip(threads, THREAD_AXES, strict=True):
            schedule.bind(loop, axis)
        vector = column_vector(anchor, sampler.values)
        if vector > 1:
            *tile, last = tile
            last, lanes = schedule.split(last, [None, vector])
            schedule.vectorize(lanes)
            tile.append(last)
        for loop in [*tile, steps]:
            schedule.unroll(loop)
        self.thread = threads[-1]
        self.first_reduction = reduction[0]
        self._stage = depth

    def place(self, copy: Any, operand: int) -> None:
        """Puts the copy of an operand where it is refilled, and shares its work among the threads."""
        schedule, sampler = self._schedule, self._sampler
        access = self._anchor.reads[operand]
        values = sampler.values
        region = access.region(staged_tile(self._anchor, self._roles, values))
        pitches = layout(self._anchor, self._roles, access, values)
        assert pitches is not None, "the decisions are legal"
        schedule.compute_at(copy, self._stage, preserve_unit_loops=True)
        turn = turn_of(access)
        for dim in range(-2, -min(len(region), 3) - 1, -1):
            schedule.storage_align(copy, 0, dim, turn, pitches[dim] % turn)
        counts = (values["tz"], values["ty"], values["tx"])
        copy_together(schedule, copy, len(region), counts, fetch_width(access, region, values["fetch"]))


def _roles(anchor: Stage) -> CudaRoles:
    roles = cuda_roles(anchor)
    assert roles is not None, "the rule matched before"
    return roles


def _sizes(extent: int, largest: int, powers: bool = False) -> tuple[int, ...]:
    """Sizes of one part of an axis: powers of two, and without `powers` the divisors too, up to `largest`."""
    bound = min(largest, extent)
    sizes = {1 << n for n in range(bound.bit_length()) if 1 << n <= bound}
    if not powers:
        sizes |= {size for size in range(1, bound + 1) if extent % size == 0}
    return tuple(sorted(sizes))


def _column_sizes(anchor: Stage, roles: CudaRoles, largest: int) -> tuple[int, ...]:
    """Sizes of one part of the columns: powers of two, and where groups are none what fits them."""
    columns = anchor.axes[roles.column].extent
    groups = {move.every for access in anchor.reads for move in access.moves[roles.column][1:]}
    odd = max((group for group in groups if group & (group - 1)), default=0)
    if not odd:
        return _sizes(columns, largest, powers=True)
    bound = min(largest, columns)
    return tuple(size for size in range(1, bound + 1) if odd % size == 0 or size % odd == 0)


def _fits(anchor: Stage, roles: CudaRoles, values: Decisions) -> bool:
    """Whether the block's tile is no larger than needed, and does not cut through groups of columns."""
    block = block_of(values)
    columns = anchor.axes[roles.column].extent
    for axis, tile in ((roles.row, block.rows), (roles.second, block.seconds)):
        extent = anchor.axes[axis].extent if axis is not None else 1
        # A tile that is not full costs what a full one does; at most half of the last one may be idle.
        if tile > 1 and tile > extent and tile >= 2 * extent:
            return False
    if block.columns > 1 and block.columns >= 2 * columns:
        return False
    for access in anchor.reads:
        for move in access.moves[roles.column][1:]:
            # TVM does not see that a copied tile keeps within one group; whole groups it does.
            if block.columns % move.every and (values["stage"] or move.every % block.columns):
                return False
    # Four columns of one thread are stored as a vector; they must not end in the middle of one.
    return columns % values["cols"] == 0


def _vectorise_store(schedule: s_tir.Schedule, block: Any) -> None:
    """Unrolls a thread's part of a stage after the reduction; its columns are vectors where they are four."""
    loops = schedule.get_loops(block)
    own = [loop for loop in loops if schedule.get(loop).thread_binding is None]
    for loop in own[:-1]:
        schedule.unroll(loop)
    if not own:
        return
    extent = int(schedule.get(own[-1]).extent)
    statement = schedule.get(block)
    if any(str(region.source.dtype) == "bool" for region in (*statement.reads, *statement.writes)):
        # TVM takes two bytes for each element of a vector of booleans.
        extent = 1
    if extent % 4 == 0 and extent > 4:
        outer, own[-1] = schedule.split(own[-1], [None, 4])
        schedule.unroll(outer)
    if extent in (2, 4) or extent % 4 == 0:
        schedule.vectorize(own[-1])
    else:
        schedule.unroll(own[-1])


RULE = CudaTiled()
