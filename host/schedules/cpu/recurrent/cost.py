"""Estimated time of a loop over the steps of a recurrent layer."""

from __future__ import annotations

from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.streams import OPERATIONS_PER_CYCLE, elementwise_cycles, shared_seconds
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Axes of a product: sequences, blocks of hidden units, gates, hidden units of a block, depth.
ROWS, BLOCKS, GATES = 0, 1, 2
# Cycles of a loop's own instructions, and of storing one vector of a tile and starting the next tile.
_LOOP_CYCLES = EstimateConstant("recurrent.loop", 1.0)
_TILE_CYCLES = EstimateConstant("recurrent.tile_overhead", 20.0)
# Starts of a parallel loop that a step with threads is charged for: every step waits for the slowest thread,
# and one that another program has put to sleep holds all steps up.
_STARTS = EstimateConstant("recurrent.starts", 5.0, neutral=1.0)

CONSTANTS = (_LOOP_CYCLES, _TILE_CYCLES, _STARTS, OPERATIONS_PER_CYCLE)


def products(workload: Workload) -> list[Stage]:
    """The products of a step."""
    return [stage for stage in workload.stages if stage.kind == "contraction"]


def recurrent_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `recurrent` rule.

    A step takes as long as its arithmetic or as its weights take to arrive from where all of them fit,
    whichever is longer: every step reads all weights once for each tile of rows.
    """
    weights = sum(_weight_bytes(product) for product in products(workload))
    level = hardware.level_of(weights)
    total = 0.0
    for stage in workload.stages:
        if stage.kind != "contraction":
            total += elementwise_cycles(stage, hardware) / hardware.frequency_hz
            continue
        seconds = _product_cycles(stage, hardware, values) / hardware.frequency_hz
        passes = stage.axes[ROWS].extent // values["rows"]
        moved = _weight_bytes(stage) * passes / level.bandwidth_bytes_per_s
        total += shared_seconds(max(seconds, moved), hardware, threads)
        total += (_STARTS.on(hardware) - 1.0) * hardware.parallel_launch_s if threads > 1 else 0.0
    return total * workload.steps


def _weight_bytes(product: Stage) -> int:
    """Bytes of the weight of a product."""
    return max(access.elements * access.element_bytes for access in product.reads)


def _product_cycles(product: Stage, hardware: HardwareModel, values: Decisions) -> float:
    """Cycles of one step's product: fused multiply-adds, their latency, or loads, whichever takes longest."""
    rows, vectors = values["rows"], values["vectors"]
    gates, depth = product.axes[GATES].extent, product.axes[product.reduction[0]].extent
    sums = rows * vectors * gates
    step = max(
        sums / hardware.fma_per_cycle,
        hardware.fma_latency_cycles,
        (vectors * gates + rows) / hardware.loads_per_cycle,
        (2 * sums + rows) / hardware.issue_width,
    )
    tiles = (product.axes[ROWS].extent // rows) * (product.axes[BLOCKS].extent // vectors)
    tile = depth * (step + _LOOP_CYCLES.on(hardware) / values["unroll"] / hardware.issue_width)
    return tiles * (tile + _TILE_CYCLES.on(hardware))
