"""Stages without reductions: elementwise chains, transposes, concatenation, gathers, resizing."""

from __future__ import annotations

import math
from collections.abc import Mapping

from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import TILE_VECTORS, fuse_parallel, inline_chain, lanes_of, vectorise
from host.schedules.cpu.injective.cost import CONSTANTS, injective_seconds
from host.schedules.cpu.injective.nest import strip_axis
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Lengths of a strip of rows: the more, the more of a line that is read across them is used at once.
STRIPS = (4, 8, 16)


class Injective(Rule):
    """One loop nest per output, everything before it inlined."""

    name = "injective"
    processor = CPU
    version = 5
    priority = 50
    constants = CONSTANTS
    decisions = (
        TILE_VECTORS,
        DecisionKind("strip", Level.REGISTER, WordClass.TILE),
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """Whether no stage of the task reduces."""
        return all(stage.kind in ("injective", "padding") for stage in workload.stages)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Vector length in registers, and the length of a strip of rows for transposes."""
        output = workload.stages[-1]
        axis = strip_axis(workload, output)
        if axis is None or _flat(workload, output):
            return {"vectors": (1, 2, 4), "strip": (0,)}
        # A strip that is longer than the axis is the whole axis, as a shorter one is.
        extent = output.axes[axis].extent
        return {"vectors": (1, 2, 4), "strip": (0, *(size for size in STRIPS if size < extent + STRIPS[0]))}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Whether a strip goes with one vector: each of its rows is one vector long."""
        return not values["strip"] or values["vectors"] == 1

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Inlines producers and vectorises what is left along contiguous memory."""
        schedule = sampler.schedule
        for name in inline_chain(schedule, [stage.name for stage in workload.stages]):
            stage = workload.stage(name)
            conditional = any(s.kind == "padding" for s in workload.stages)
            flat = _flat(workload, stage)
            strided = None if flat else strip_axis(workload, stage)
            self._schedule_output(sampler, stage, flat, strided, conditional, hardware, threads)

    @staticmethod
    def _schedule_output(
        sampler: Sampler,
        stage: Stage,
        flat: bool,
        strided: int | None,
        conditional: bool,
        hardware: HardwareModel,
        threads: int,
    ) -> None:
        schedule = sampler.schedule
        block = schedule.get_sblock(stage.name)
        loops = schedule.get_loops(block)
        if not loops:
            return
        width = lanes_of(hardware, stage.write.element_bytes)
        if flat:
            count = _fused(stage, width)
            loops = [*loops[:-count], schedule.fuse(*loops[-count:]) if count > 1 else loops[-1]]
        strip = sampler.value("strip")
        if strip and strided is not None:
            outer, inner = schedule.split(loops[strided], [None, sampler.sample("strip")])
            last = vectorise(schedule, loops[-1], width, conditional)
            # A row that is shorter than a vector, or a core without vectors, has its elements one by one.
            schedule.reorder(outer, *loops[strided + 1 : -1], loops[-1] if last is None else last, inner)
            loops = [*loops[:strided], outer]
        else:
            extent = int(schedule.get(loops[-1]).extent)
            last = vectorise(schedule, loops[-1], width, conditional)
            if last is not None:
                count = int(schedule.get(last).extent)
                vectors = sampler.value("vectors")
                ragged = count * int(schedule.get(schedule.get_loops(block)[-1]).extent) != extent
                if vectors > 1 and count % vectors == 0 and not (conditional or ragged):
                    last, unrolled = schedule.split(last, [None, sampler.sample("vectors")])
                    schedule.unroll(unrolled)
                loops = [*loops[:-1], last]
        extents = [int(schedule.get(loop).extent) for loop in loops]
        keep = 1 if len(loops) > 1 else 0
        fuse_parallel(schedule, loops[: len(loops) - keep] or loops, extents, threads)

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call, see `cost`."""
        return injective_seconds(workload, hardware, threads, values)


def _fused(stage: Stage, width: int) -> int:
    """How many of the innermost loops become one, if memory is walked through in the order of all.

    Whole vectors in the innermost: all. Otherwise as few as hold whole vectors, or all. TVM sees that the
    fused index is one number again unless a vector divides what one step of an outer loop moves, but
    that of the innermost does not: it has divided by the vector by then, and gathers element by element.
    """
    extents = [axis.extent for axis in stage.axes]
    if extents[-1] % width == 0:
        return len(extents)
    for count in range(1, len(extents)):
        if math.prod(extents[-count:]) % width == 0 and math.prod(extents[:-count]) > 1:
            return count
    return len(extents)


def _flat(workload: Workload, output: Stage) -> bool:
    """Whether every buffer is walked through in the order of the output, so that all loops are one."""
    if any(stage.kind == "padding" for stage in workload.stages):
        return False
    for stage in workload.stages:
        if [a.extent for a in stage.axes] != [a.extent for a in output.axes]:
            return False
        for access in stage.reads:
            scalar = all(s == 0 for s in access.strides) and access.elements == 1
            if access.strides != stage.write.strides and not scalar:
                return False
    return True


RULE = Injective()
