"""Estimated time of a register-blocked program, from the hardware model alone.

T = max(compute, traffic of each level / its bandwidth) + a share of what overlaps badly, times the imbalance
of parallel chunks (roofline, with Roller's traffic, OSDI'22). Register interleave enters through the latency
of dependent operations, associativity through rows that fall into one cache set. Terms other than traffic and
imbalance are ours; the paper's exact expressions are not public.
"""

from __future__ import annotations

import math

from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.tiled.padding import PADDING_CONSTANTS, padding_seconds
from host.schedules.cpu.tiled.roles import (
    FETCHING_ROWS,
    Roles,
    cold_weights,
    counts_of,
    keeps_conditions,
    lost_by_panels,
    outer_iterations,
    outer_order,
    parallel_chunks,
    registers,
    roles_of,
    rows_shared,
    tiles_and_blocks,
    unrolled_window,
    uses_of_weights,
    weights_level,
)
from host.schedules.cpu.tiled.transfers import TRANSFER_CONSTANTS, memory_seconds
from host.schedules.workload import Access, Stage, Workload
from targets import HardwareModel

# Beside the decisions, of a rule around this one that loads vectors along the sum: the steps of it for which
# one load brings what all lanes share.
STEPS_LOADED = "steps_loaded"
# Cycles around one register tile, which short ones share: addresses, filling and draining the pipeline.
_TILE_OVERHEAD_CYCLES = EstimateConstant("tiled.tile_overhead", 16.0)
# What a tile that is not full costs beyond its share: code of its own, registers that stay empty.
_RAGGED = EstimateConstant("tiled.ragged", 1.3, neutral=1.0)
# The same of a tile with a remainder of a vector, whose kernel is repeated once per lane: products of 49 x 64
# with 64 x 49 took 49 us with all of a row in one tile, 15 us with half of it.
_RAGGED_LANES = EstimateConstant("tiled.ragged_lanes", 3.0, neutral=1.0)
# Arithmetic and loads share the ports and the queues of a core: the cycles of both together are those of the
# p-norm. Tiles of 16 x 1 and 8 x 2 vectors, which need 8 cycles of two units and 8.5 or 6 cycles of loads:
# 626 and 510 us for 64 x 1376 x 512 (a Xeon with two units of 512 bits, time of the thread).
_SHARED_PORTS = EstimateConstant("tiled.shared_ports", 4.0)
# Slow-down where conditions stay in the innermost loops: products of 197 x 64 with 64 x 197 in two bands of
# blocks of 2, 5 and 10 tiles took 376, 253 and 232 us, of single tiles 65 (Zen 4, time of the thread).
_CONDITIONS = EstimateConstant("tiled.conditions", 4.5, neutral=1.0)
# Slow-down by conflicts in the first level: between 1.3 and 4 in measured programs.
_CONFLICT = EstimateConstant("tiled.conflict", 2.0, neutral=1.0)
_CLOSE_CONFLICT = EstimateConstant("tiled.close_conflict", 1.03, neutral=1.0)
# Share of the memory bandwidth that a core's own prefetching reaches on a few streams, and on more of them
# than it follows: packed vectors of a panel lie apart, each is a stream. 4 and 8 vectors of 3072 weights:
# 100 and 105 us in the cache, 202 and 264 us from memory.
_STREAM = EstimateConstant("tiled.stream", 0.7, spread=0.2)
_MANY_STREAMS = EstimateConstant("tiled.many_streams", 0.6, spread=0.2)
_FOLLOWED_STREAMS = 6
_LINE_ELEMENTS = 16
# What is lost without fetching ahead from `FETCHING_ROWS` on, and what fetching costs below, as shares of the
# time in which the weights come: with 4 rows of 768 to 2048 weights it costs up to 26% (nothing is computed
# that could hide it), with 8 it halves the time from cold memory; BERT-base gains 5.4% where its weights take
# 8% of the time to come.
_NOT_FETCHED = EstimateConstant("tiled.not_fetched", 0.7)
_FETCHED_FOR_FEW = EstimateConstant("tiled.fetched_for_few", 0.26)
# Slow-down when every register is taken: the stages after the reduction spill.
_CROWDED = EstimateConstant("tiled.crowded", 0.06)
# Share of the transfers into the first, second, third ... level that arithmetic does not hide: the farther
# the source, the less prefetching covers.
_EXPOSED = (
    EstimateConstant("tiled.exposed_L2", 0.05),
    EstimateConstant("tiled.exposed_L3", 0.25),
    EstimateConstant("tiled.exposed_DRAM", 0.5),
)
# Long code without a loop: LLVM moves loads ahead of their use and runs out of registers. Sums of 16 products
# in tiles of 14 x 2 vectors, all unrolled: 560 us, 161 us with a loop. Most such programs lose nothing.
_LONG_CODE = 256
_STRAIGHT_LINE = EstimateConstant("tiled.straight_line", 1.1, neutral=1.0)

CONSTANTS = (
    _TILE_OVERHEAD_CYCLES,
    _RAGGED,
    _RAGGED_LANES,
    _CONDITIONS,
    _SHARED_PORTS,
    _CONFLICT,
    _CLOSE_CONFLICT,
    _STREAM,
    _MANY_STREAMS,
    _NOT_FETCHED,
    _FETCHED_FOR_FEW,
    *TRANSFER_CONSTANTS,
    _CROWDED,
    _STRAIGHT_LINE,
    *_EXPOSED,
    *PADDING_CONSTANTS,
)


def tiled_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `tiled` rule."""
    anchor = workload.anchor_stage
    roles = roles_of(anchor, hardware)
    assert roles is not None
    compute = _compute_seconds(anchor, roles, hardware, values)
    return nest_seconds(workload, roles, hardware, threads, values, compute)


def nest_seconds(
    workload: Workload,
    roles: Roles,
    hardware: HardwareModel,
    threads: int,
    values: Decisions,
    compute: float,
) -> float:
    """Estimated seconds of one call of a nest of this form, whatever computes its tiles.

    Args:
        workload: whose anchor it is.
        roles: of the anchor's axes.
        hardware: the processor.
        threads: that share the call.
        values: of the decisions.
        compute: seconds of arithmetic of one thread.
    """
    anchor = workload.anchor_stage
    memory = memory_seconds(anchor, roles, hardware, values)
    exposed = sum(share.on(hardware) * moved for share, moved in zip(_EXPOSED, memory, strict=False))
    seconds = max(compute + exposed, *memory)
    seconds += padding_seconds(workload, roles, hardware, values, compute)
    if threads <= 1:
        return seconds
    chunks, rows, conditional = _chunks(anchor, roles, values, threads)
    share = seconds * -(-chunks // threads) / chunks
    if conditional:
        share *= _CONDITIONS.on(hardware)
    if rows < threads and chunks > 1:
        # What cores hand to each other goes through the level that they share.
        between = max(0.0, lost_by_panels(anchor, roles, threads))
        share += between / hardware.levels[-2].bandwidth_bytes_per_s
    return share + hardware.parallel_launch_s


def tiled_parts(workload: Workload, hardware: HardwareModel, values: Decisions) -> dict[str, float]:
    """The parts of `tiled_seconds`, in seconds on one core.

    "compute" and "padding", and transfers by the memory level that delivers them; of the last level only
    what exceeds reading everything once.
    """
    anchor = workload.anchor_stage
    roles = roles_of(anchor, hardware)
    assert roles is not None
    compute = _compute_seconds(anchor, roles, hardware, values)
    memory = memory_seconds(anchor, roles, hardware, values)
    sources = [level.name for level in hardware.levels[1:]]
    moved = dict(zip(sources, memory, strict=True))
    padding = padding_seconds(workload, roles, hardware, values, compute)
    return {"compute": compute, **moved, "padding": padding}


def _chunks(anchor: Stage, roles: Roles, values: Decisions, threads: int) -> tuple[int, int, bool]:
    """Iterations of the loops that threads share, those that are not over panels, and `keeps_conditions`."""
    known = anchor.known("tiled.chunks", roles)
    key = (threads, *tiles_and_blocks(values))
    found: tuple[int, int, bool] | None = known.get(key)
    if found is None:
        counts = counts_of(roles, values)
        rows = rows_shared(anchor, roles, counts, threads)
        conditional = keeps_conditions(anchor, roles, counts, threads)
        found = known[key] = (parallel_chunks(anchor, roles, counts, threads), rows, conditional)
    return found


def _compute_seconds(anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions) -> float:
    """Seconds of arithmetic, computed once for the programs that differ in other decisions alone."""
    tile = (values["vectors"], values["rows"], values["rows2"], values["unroll"], values["window"])
    fetch = values.get("fetch")
    lines = lines_fetched(roles, values, values["vectors"]) if hardware.fetch_cycles else 0.0
    key = (tile, fetch, values["panel"] if fetch else 0, lines)
    known = anchor.known("tiled.compute", hardware)
    found: float | None = known.get(key)
    if found is None:
        cycles = _compute_cycles(anchor, roles, hardware, values)
        found = known[key] = cycles / hardware.frequency_hz
    return found


def _compute_cycles(anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions) -> float:
    """Cycles of arithmetic, loads and instruction supply over the whole call."""
    vectors, rows = values["vectors"], values["rows"]
    depth = roles.depth
    full_v, rest_v = divmod(roles.groups, vectors)
    full_r, rest_r = divmod(roles.row_total, rows)
    total = 0.0
    overhead, ragged = _TILE_OVERHEAD_CYCLES.on(hardware), _RAGGED.on(hardware)
    for count_v, v in ((full_v, vectors), (1 if rest_v else 0, rest_v)):
        for count_r, r in ((full_r, rows), (1 if rest_r else 0, rest_r)):
            if count_v and count_r:
                step = _step_cycles(anchor, roles, hardware, values, v, r, depth)
                sums = v * r * values["rows2"]
                tile = step * depth + overhead / _overlapping(roles, hardware, sums, depth) + 2.0 * sums
                total += count_v * count_r * tile * (ragged if v < vectors or r < rows else 1.0)
        if count_v:
            total += _waiting_cycles(anchor, roles, hardware, values, v, count_v)
    if roles.ragged_vectors:
        last = _step_cycles(anchor, roles, hardware, values, rest_v or vectors, rows, depth) * depth
        total += (_RAGGED_LANES.on(hardware) - 1.0) * last * roles.row_total / rows
    used = registers(anchor, roles, hardware, values) / hardware.vector_registers
    crowding = 1.0 + _CROWDED.on(hardware) * max(0.0, used - 0.75) / 0.25
    if values["window"] and unrolled_window(anchor, roles) == depth:
        long = vectors * rows * values["rows2"] * depth >= _LONG_CODE
        crowding *= _STRAIGHT_LINE.on(hardware) if long else 1.0
    return total * crowding * (roles.second_total // values["rows2"]) * outer_iterations(anchor, roles)


def _waiting_cycles(
    anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions, vectors: int, panels: int
) -> float:
    """Cycles in which panels of `vectors` wait for their weights.

    Weights that are not fetched ahead come while the first row tile of their panel is computed. Those that
    are come while all of the panel before is; only the first block of panels has none before it.
    """
    depth = roles.depth
    first = _step_cycles(anchor, roles, hardware, values, vectors, values["rows"], depth) * depth
    coming = weight_cycles(anchor, roles, hardware, vectors)
    waiting = _wrong_fetch_share(anchor, roles, hardware, values) * coming * panels
    if not values.get("fetch"):
        return waiting + max(0.0, coming - first) * panels
    panel = first * roles.row_total / values["rows"]
    return waiting + max(0.0, coming - panel) * panels + min(coming, panel) * min(panels, values["panel"])


def _wrong_fetch_share(anchor: Stage, roles: Roles, hardware: HardwareModel, values: Decisions) -> float:
    """Share of the weights' way from memory that the wrong decision on fetching them ahead costs."""
    if "fetch" not in values or cold_weights(anchor, roles, hardware) is None:
        return 0.0
    if uses_of_weights(anchor, roles) < FETCHING_ROWS:
        return _FETCHED_FOR_FEW.on(hardware) if values["fetch"] else 0.0
    return 0.0 if values["fetch"] else _NOT_FETCHED.on(hardware)


def weight_cycles(anchor: Stage, roles: Roles, hardware: HardwareModel, vectors: int) -> float:
    """Cycles in which the weights of one panel come from where a run of the model finds them.

    In a running model weights are not near: all others have been read since. They arrive while the first row
    tile of a panel is computed; the taller that tile, the more of their way is hidden.
    """
    source = hardware.levels[weights_level(anchor, roles, hardware)]
    total = 0.0
    for access in anchor.reads:
        shared = not any(access.strides[axis] for axis in roles.rows if anchor.axes[axis].extent > 1)
        shared = shared and (roles.second is None or not access.strides[roles.second])
        size = access.elements * access.element_bytes
        if access.argument and shared and size > hardware.levels[0].size_bytes:
            panel = size * vectors / roles.groups
            apart = access.groups[roles.vector][0] and vectors > _FOLLOWED_STREAMS
            # A cache delivers all that it can whatever the streams.
            cached = source.size_bytes > 0
            share = 1.0 if cached else (_MANY_STREAMS if apart else _STREAM).on(hardware)
            total += panel / (share * source.bandwidth_bytes_per_s) * hardware.frequency_hz
    return total


def _step_cycles(
    anchor: Stage,
    roles: Roles,
    hardware: HardwareModel,
    values: Decisions,
    vectors: int,
    rows: int,
    depth: int,
) -> float:
    """Cycles of one reduction step of one register tile.

    The largest of: arithmetic units, load ports, instruction supply, and the latency of a dependent
    operation, since each accumulator takes one step after the other.
    """
    per_vector = max(1.0, roles.lanes / hardware.lanes)
    narrow = min(1.0, roles.lanes / hardware.lanes)
    tile = vectors * rows * values["rows2"] * per_vector
    # A part of a vector costs half a slot where two halves start in a cycle, never less.
    arithmetic = tile / hardware.fma_per_cycle * max(narrow, hardware.half_vector_cost)
    written_out = values["unroll"] * (unrolled_window(anchor, roles) if values["window"] else 1)
    arithmetic += hardware.loop_cycles / written_out
    row_axis = roles.rows[0] if roles.rows else None
    loads = broadcasts = 0.0
    for access in anchor.reads:
        moves_rows = row_axis is not None and access.strides[row_axis] != 0
        moves_second = roles.second is not None and access.strides[roles.second] != 0
        count = (rows if moves_rows else 1) * (values["rows2"] if moves_second else 1)
        elements = _elements_spread(access, roles, vectors)
        if elements:
            broadcasts += count * elements / values.get(STEPS_LOADED, 1)
        else:
            reuse = (
                _window_reuse(anchor, roles, access.strides, rows) if values["window"] and moves_rows else 1.0
            )
            loads += count * vectors * per_vector / reuse
    vector_bytes = hardware.vector_bits / 8 * narrow
    load_cycles = loads * max(
        vector_bytes * hardware.frequency_hz / hardware.levels[0].bandwidth_bytes_per_s,
        1.0 / hardware.loads_per_cycle,
    )
    load_cycles += broadcasts / hardware.loads_per_cycle
    fetched = lines_fetched(roles, values, vectors) if hardware.fetch_cycles else 0.0
    load_cycles += fetched * hardware.fetch_cycles
    instructions = tile + loads + (broadcasts if vectors > 1 else 0.0) + fetched + 2.0 / values["unroll"]
    supply = instructions / hardware.issue_width
    sums = vectors * rows * values["rows2"]
    latency = hardware.fma_latency_cycles / _overlapping(roles, hardware, sums, depth)
    conflict = _set_conflicts(anchor, roles, rows, values["rows2"], hardware)
    power = max(1.0, _SHARED_PORTS.on(hardware))
    ports: float = (arithmetic**power + load_cycles**power) ** (1.0 / power)
    return max(ports, supply, latency) * conflict


def lines_fetched(roles: Roles, values: Decisions, vectors: int) -> float:
    """Lines of the next panel that a step of a tile of so many vectors fetches, where weights are fetched.

    All tiles of a block share the lines of the next panels (`nest.Nest.prefetch`). Where panels are the
    innermost loop around a tile, each tile fetches as many lines as it reads.
    """
    if not values.get("fetch"):
        return 0.0
    counts = counts_of(roles, values)
    order = outer_order(roles, counts)
    trips = {"second": counts.second_blocks, "rows": counts.tile_blocks}
    sharing = math.prod(trips[name] for name in order[order.index("vectors") + 1 :])
    return vectors * roles.lanes / _LINE_ELEMENTS / (sharing * values["block"] * values["block2"])


def _overlapping(roles: Roles, hardware: HardwareModel, sums: int, depth: int) -> float:
    """How many tiles of so many vectors of sums a core works on at once: as many as it looks ahead."""
    return max(1.0, hardware.look_ahead / (sums * max(1.0, roles.lanes / hardware.lanes) * depth))


def _elements_spread(access: Access, roles: Roles, vectors: int) -> int:
    """How many elements of a buffer a row of vectors takes, each for all lanes; 0 where it takes vectors.

    Of a dense product that is one, of a convolution in groups one for each group that the vectors are of.
    """
    if not access.uses(roles.vector):
        return 1
    if access.offset(roles.vector, roles.lanes - 1) or roles.lanes == 1:
        return 0
    return len({access.offset(roles.vector, roles.lanes * vector) for vector in range(vectors)})


def _window_reuse(anchor: Stage, roles: Roles, strides: tuple[int, ...], rows: int) -> float:
    """How often an unrolled window uses one loaded vector: rows x width over the elements of their union."""
    row_stride = strides[roles.rows[0]]
    for axis in roles.reduction:
        step, extent = strides[axis], anchor.axes[axis].extent
        if step and extent > 1 and step <= row_stride and row_stride % step == 0:
            union = (rows - 1) * (row_stride // step) + extent
            return max(1.0, rows * extent / union)
    return 1.0


def _set_conflicts(anchor: Stage, roles: Roles, rows: int, rows2: int, hardware: HardwareModel) -> float:
    """Slow-down when lines that a tile reads again at every step compete for one set of the first level.

    A tile reads one line per row; lines whose addresses are equal modulo the size of one way share a set,
    and a set holds as many as it has ways. One way is left to what streams through.
    """
    first = hardware.levels[0]
    if not roles.rows or not first.ways:
        return 1.0
    way_bytes = first.size_bytes // first.ways
    worst = 0
    for access in anchor.reads:
        step = access.strides[roles.rows[0]] * access.element_bytes
        step2 = access.strides[roles.second] * access.element_bytes if roles.second is not None else 0
        if not step and not step2:
            continue
        sets: dict[int, set[int]] = {}
        for row in range(rows if step else 1):
            for row2 in range(rows2 if step2 else 1):
                address = row * step + row2 * step2
                sets.setdefault(address % way_bytes // first.line_bytes, set()).add(
                    address // first.line_bytes
                )
        worst = max(worst, max(len(lines) for lines in sets.values()))
    if worst > first.ways:
        return _CONFLICT.on(hardware)
    return _CLOSE_CONFLICT.on(hardware) if worst == first.ways else 1.0
