"""Estimated time of a convolution by Winograd's algorithm.

The products are a batch of matrix products whose operands have just been made: what counts besides their
arithmetic is the arithmetic of the transforms, how often weights are transformed again, and the cache level
in which one block (its weights, input and products) finds room.
"""

from __future__ import annotations

from host.lowering.winograd import TILES
from host.lowering.winograd.choice import input_cycles, output_cycles, weight_cycles
from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.winograd.shape import PAD_COPY, WinogradShape, winograd_shape
from host.schedules.workload import Workload
from targets import HardwareModel

# As in `tiled/cost.py`: cycles around one register tile.
_TILE_OVERHEAD_CYCLES = EstimateConstant("winograd.tile_overhead", 16.0)
# Shares of the time of transfers that arithmetic does not hide, from the second level and from farther; of
# fetching the taps from memory if they are displaced before they are used, or if they come from several
# places at once, which hardware prefetching follows less well. All measured.
_EXPOSED = EstimateConstant("winograd.exposed_near", 0.08)
_EXPOSED_FAR = EstimateConstant("winograd.exposed_far", 0.35)
_DISPLACED = EstimateConstant("winograd.displaced", 0.5)
_SCATTERED = EstimateConstant("winograd.scattered", 0.4)
# Tests for the border make the transform of the input slower by this factor; measured.
_TESTED = EstimateConstant("winograd.tested", 1.15, neutral=1.0)

CONSTANTS = (_TILE_OVERHEAD_CYCLES, _EXPOSED, _EXPOSED_FAR, _DISPLACED, _SCATTERED, _TESTED)


def winograd_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `winograd` rule."""
    shape = winograd_shape(workload, hardware)
    assert shape is not None, "the rule matched before"
    input_s = _input_seconds(hardware, shape, values)
    compute = _product_cycles(shape, hardware, values) / hardware.frequency_hz
    memory, exposed = _memory_seconds(shape, hardware, values)
    transform = TILES[shape.outputs]
    taps = _weight_repeats(threads, shape, values) * shape.blocks * shape.channels_in
    cycles = taps * weight_cycles(transform, shape.lanes, hardware)
    cycles += shape.tiles * shape.blocks * output_cycles(transform, shape.lanes, hardware)
    seconds = max(compute + exposed, memory) + cycles / hardware.frequency_hz
    if threads <= 1:
        return seconds + input_s
    chunks = _chunks(shape, values)
    shared = seconds * -(-chunks // threads) / chunks + input_s / threads
    return shared + 2.0 * hardware.parallel_launch_s


def _chunks(shape: WinogradShape, values: Decisions) -> int:
    """Number of pieces of work that threads can share."""
    if shape.strips(values) > 1:
        return shape.batch * shape.strips(values)
    return shape.blocks // values["vectors"] * shape.batch * values["span"]


def _weight_repeats(threads: int, shape: WinogradShape, values: Decisions) -> int:
    """How often each weight is transformed."""
    strips = shape.strips(values)
    if values["depth"] < shape.channels_in or (threads > 1 and strips == 1):
        return shape.batch * shape.down // values["tiles"]
    return 1 if strips == 1 else shape.batch * strips


def _product_cycles(shape: WinogradShape, hardware: HardwareModel, values: Decisions) -> float:
    """Cycles of the matrix products, without waits for operands."""
    rows, vectors, depth = values["rows"], values["vectors"], values["depth"]
    per_vector, narrow = max(1.0, shape.lanes / hardware.lanes), min(1.0, shape.lanes / hardware.lanes)
    loads = vectors * per_vector
    tile = rows * loads
    # A part of a vector costs half a slot where two halves start in a cycle, never less.
    arithmetic = tile / hardware.fma_per_cycle * max(hardware.half_vector_cost, narrow)
    load_cycles = loads * narrow * hardware.vector_bits / 8
    load_cycles *= hardware.frequency_hz / hardware.levels[0].bandwidth_bytes_per_s
    load_cycles += rows / hardware.loads_per_cycle
    supply = tile + loads + (rows if loads > 1 else 0) + 2.0 / values["unroll"]
    supply /= hardware.issue_width
    latency = hardware.fma_latency_cycles / max(1.0, hardware.look_ahead / (tile * depth))
    arithmetic += hardware.loop_cycles / values["unroll"]
    step = max(arithmetic, load_cycles, supply, latency)
    # Accumulators are fetched and put back in every part of the reduction.
    each = step * depth + _TILE_OVERHEAD_CYCLES.on(hardware) + 2.0 * tile
    parts = shape.channels_in // depth
    return each * parts * shape.size**2 * (shape.tiles / rows) * (shape.blocks / vectors)


def _memory_seconds(shape: WinogradShape, hardware: HardwareModel, values: Decisions) -> tuple[float, float]:
    """Seconds to bring operands and products to the arithmetic, and how many of them are not hidden."""
    elements = 4 * shape.size**2
    tiles = values["tiles"] * shape.across
    channels = values["vectors"] * shape.lanes
    weights = elements * values["depth"] * channels
    part_input = elements * tiles * values["depth"]
    products = elements * tiles * channels
    parts = shape.channels_in // values["depth"]
    blocks = (shape.tiles // tiles) * (shape.blocks // values["vectors"])
    # The taps from which the weights of the next part are made arrive meanwhile.
    taps = 36 * values["depth"] * channels
    inside = hardware.level_of(weights + part_input + products + taps)
    # Weights of one product stay in the first level from one register tile to the next, or are fetched anew.
    plane = 4 * values["depth"] * (channels + values["rows"])
    fetches = 1 if plane <= 0.75 * hardware.levels[0].size_bytes else tiles // values["rows"]
    moved = blocks * (parts * ((1 + fetches) * weights + 2 * products) + products)
    kept = elements * tiles * values["span"] * shape.channels_in
    if shape.strips(values) == 1:
        kept *= shape.batch
    outside = hardware.level_of(kept + weights)
    near = inside in hardware.levels[:2]
    inside_s = moved / inside.bandwidth_bytes_per_s
    outside_s = blocks * parts * part_input / outside.bandwidth_bytes_per_s
    whole = 36 * shape.channels_in * shape.blocks * shape.lanes
    from_memory_s = whole / hardware.levels[-1].bandwidth_bytes_per_s
    exposed = (_EXPOSED if near else _EXPOSED_FAR).on(hardware) * inside_s
    exposed += (_EXPOSED if outside in hardware.levels[:2] else _EXPOSED_FAR).on(hardware) * outside_s
    exposed += (0.0 if near else _DISPLACED.on(hardware)) * from_memory_s
    exposed += (0.0 if values["vectors"] == 1 else _SCATTERED.on(hardware)) * from_memory_s
    return inside_s + outside_s, exposed


def _input_seconds(hardware: HardwareModel, shape: WinogradShape, values: Decisions) -> float:
    """Seconds of the transform of the input, with what it takes to pad it."""
    vectors = shape.tiles * shape.channels_in / shape.input_lanes
    tested = 1.0 if values["pad"] == PAD_COPY or not shape.pads else _TESTED.on(hardware)
    seconds = vectors * input_cycles(TILES[shape.outputs], hardware) * tested / hardware.frequency_hz
    made = 4 * shape.size**2 * shape.tiles * shape.channels_in
    seconds += made / hardware.level_of(made).bandwidth_bytes_per_s
    if values["pad"] == PAD_COPY:
        for stage in shape.pads:
            size = stage.write.elements * stage.write.element_bytes
            seconds += 3.0 * size / hardware.level_of(size).bandwidth_bytes_per_s
    return seconds
