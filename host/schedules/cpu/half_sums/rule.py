"""Products of halves on processors with arithmetic in halves: `tiled` around sums of blocks of the depth.

The innermost loop makes the sums of one block for a register tile, in halves, and adds them to those of the
tile in single precision. Activations come as vectors along the depth, of which the processor multiplies one
element with a vector of weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from host.schedules.api import CPU, Decisions, Rule, Sampler
from host.schedules.cpu.common import inline_chain, prologue_names, schedule_copy
from host.schedules.cpu.half_sums.cost import CONSTANTS, half_sums_seconds
from host.schedules.cpu.half_sums.stage import as_one_sum, sums_blocks
from host.schedules.cpu.tiled.nest import Nest
from host.schedules.cpu.tiled.roles import PAD_COPY, Roles, roles_of
from host.schedules.cpu.tiled.rule import Tiled, vectorise_tail
from host.schedules.workload import Workload
from targets import HardwareModel

# Decisions of `tiled` that are not open: the block is written out, and its weights are small.
_FIXED = {"unroll": 1, "window": 0, "pad": PAD_COPY, "fetch": 0}
_MOST_CODE = 512


class HalfSums(Rule):
    """The nest of `tiled` with the sums of a block inside."""

    name = "half_sums"
    processor = CPU
    # The loops are those of `tiled`. Both numbers only grow, so a change of either makes another sum.
    version = 2 + Tiled.version
    priority = 20
    constants = CONSTANTS
    decisions = tuple(kind for kind in Tiled.decisions if kind.name not in ("unroll", "window", "fetch"))

    def __init__(self) -> None:
        self._tiled = Tiled()

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """Sums of blocks of halves, a processor that makes them, and a nest that `tiled` can make."""
        if not hardware.half_arithmetic or not sums_blocks(workload):
            return False
        one, wide = as_one_sum(workload), hardware.on_halves()
        return self._tiled.matches(one, wide) and _roles(one, wide).lanes == wide.lanes

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Those of `tiled` around one block; padded inputs are always copied."""
        found = self._tiled.choices(as_one_sum(workload), hardware.on_halves())
        return {**{name: sizes for name, sizes in found.items() if name not in _FIXED}, "pad": (PAD_COPY,)}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """The conditions of `tiled`, and registers for both kinds of sums, activations and weights."""
        one, wide = as_one_sum(workload), hardware.on_halves()
        sums = values["vectors"] * values["rows"] * values["rows2"]
        used = 3 * sums + values["vectors"] + values["rows"] * values["rows2"]
        code = sums * one.anchor_stage.axes[-1].extent
        fits = used <= hardware.vector_registers and code <= _MOST_CODE
        return fits and self._tiled.legal(one, wide, {**_FIXED, **values})

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Tiles the sums of blocks' sums, puts the block's inside, and vectorises."""
        schedule = sampler.schedule
        one, wide = as_one_sum(workload), hardware.on_halves()
        roles = _roles(one, wide)
        block = schedule.get_sblock(one.anchor_stage.name)
        inner = schedule.get_sblock(workload.anchor_stage.name)
        activations = schedule.cache_read(inner, 0, "local")
        schedule.set_scope(inner, 0, "local")
        names = [stage.name for stage in workload.stages[workload.anchor + 2 :]]
        tails = inline_chain(schedule, names)
        if tails:
            schedule.set_scope(block, 0, "local")
        else:
            tails = [schedule.get(schedule.cache_write(block, 0, "local")).name_hint]
        nest = Nest(sampler, one.anchor_stage, roles, block, threads, staged=True)
        for name in tails:
            tail = schedule.get_sblock(name)
            schedule.reverse_compute_at(tail, nest.attach)
            # Panels stay a loop: where they are written out, more sums leave the registers.
            depth = len(schedule.get_loops(tail))
            vectorise_tail(schedule, tail, nest.attach, depth, roles.lanes, inside=True)
        axes = len(one.anchor_stage.axes)
        steps = _schedule_block(schedule, inner, activations, nest.innermost, axes, roles.lanes)
        for name in prologue_names(workload):
            schedule_copy(schedule, name, wide.lanes, threads)
        nest.parallelise(threads)
        # TVM makes no loop parallel around a sum whose initialisation stands apart.
        schedule.decompose_reduction(inner, steps)
        nest.finish()

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return half_sums_seconds(workload, hardware, threads, {**_FIXED, **values})


def _schedule_block(schedule: Any, inner: Any, activations: Any, place: Any, axes: int, lanes: int) -> Any:
    """Computes the sums of one block for a tile in the loop `place`: all written out, vectors of results.

    Returns:
        The outermost loop over steps of the sum.
    """
    schedule.compute_at(inner, place, preserve_unit_loops=True)
    *others, columns, depth = schedule.get_loops(inner)[-axes:]
    # Activations come in whole vectors, or in halves of these.
    together = lanes if int(schedule.get(depth).extent) % lanes == 0 else lanes // 2
    outer, step = schedule.split(depth, [None, together])
    vectors, lane = schedule.split(columns, [None, lanes])
    schedule.reorder(outer, step, *others, vectors, lane)
    schedule.compute_at(activations, outer)
    loaded = schedule.get_loops(activations)
    schedule.vectorize(loaded[-1])
    schedule.vectorize(lane)
    for loop in (*others, vectors, step):
        schedule.unroll(loop)
    return outer


def _roles(one: Workload, wide: HardwareModel) -> Roles:
    roles = roles_of(one.anchor_stage, wide)
    assert roles is not None, "the rule matched before"
    return roles


RULE = HalfSums()
