"""Recurrent layers: in each step, products tiled in registers, and the cell in vectors.

A tile is `rows` sequences by `vectors` vectors of hidden units, all gates of each. The products of a step and
its states are small enough for the innermost cache, and no function is called between steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from host.schedules.api import CPU, Decisions, Rule, Sampler
from host.schedules.cpu.common import TILE_ROWS, TILE_VECTORS, UNROLLED_STEPS, divisors, vectorise
from host.schedules.cpu.recurrent.cost import BLOCKS, CONSTANTS, GATES, ROWS, products, recurrent_seconds
from host.schedules.workload import Workload
from targets import HardwareModel

_MOST_ROWS, _MOST_VECTORS, _MOST_UNROLLED = 4, 8, 8


class Recurrent(Rule):
    """A tile of hidden units by step, with all its gates."""

    name = "recurrent"
    processor = CPU
    version = 1
    priority = 5
    constants = CONSTANTS
    decisions = (TILE_VECTORS, TILE_ROWS, UNROLLED_STEPS)

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A loop over steps; no other rule takes such a task."""
        return workload.steps > 0

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Divisors of the hidden units' vectors, of the sequences, and of the depth of the products."""
        first = products(workload)[0]
        depth = first.axes[first.reduction[0]].extent
        return {
            "vectors": divisors(first.axes[BLOCKS].extent, _MOST_VECTORS),
            "rows": divisors(first.axes[ROWS].extent, _MOST_ROWS),
            "unroll": divisors(depth, _MOST_UNROLLED),
        }

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """The sums of a tile and what they are multiplied with fit the registers, or it is the least tile."""
        tile = values["rows"] * values["vectors"]
        gates = max(product.axes[GATES].extent for product in products(workload))
        return tile == 1 or tile * gates + values["rows"] + 1 <= hardware.vector_registers

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Tiles each product, and runs everything else in vectors."""
        schedule = sampler.schedule
        for stage in workload.stages:
            block = schedule.get_sblock(stage.name)
            if stage.kind == "contraction":
                _tile(sampler, block, threads)
            else:
                vectorise(schedule, schedule.get_loops(block)[-1], hardware.lanes)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return recurrent_seconds(workload, hardware, threads, values)


def _tile(sampler: Sampler, product: Any, threads: int) -> None:
    """Sums tiles in registers over the whole depth."""
    schedule = sampler.schedule
    row, block, gate, lane, depth = schedule.get_loops(product)
    row, row_tile = schedule.split(row, [None, sampler.sample("rows")])
    block, block_tile = schedule.split(block, [None, sampler.sample("vectors")])
    depth, steps = schedule.split(depth, [None, sampler.sample("unroll")])
    schedule.reorder(row, block, depth, steps, row_tile, block_tile, gate, lane)
    for loop in (steps, row_tile, block_tile, gate):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    stored = schedule.cache_write(product, 0, "local")
    schedule.reverse_compute_at(stored, block, preserve_unit_loops=True)
    *tile, lane = schedule.get_loops(stored)[-4:]
    for loop in tile:
        schedule.unroll(loop)
    schedule.vectorize(lane)
    if threads > 1:
        schedule.parallel(schedule.fuse(row, block))
    schedule.decompose_reduction(product, depth)


RULE = Recurrent()
