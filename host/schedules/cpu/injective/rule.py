"""Stages without reductions: elementwise chains, transposes, concatenation, gathers, resizing."""

from __future__ import annotations

import math
from collections.abc import Mapping

from host.schedules.api import CPU, DecisionKind, Decisions, Level, Rule, Sampler, WordClass
from host.schedules.cpu.common import TILE_VECTORS, fuse_parallel, inline_chain, lanes_of, vectorise
from host.schedules.cpu.injective.cost import injective_seconds
from host.schedules.cpu.streams import CONSTANTS
from host.schedules.workload import Stage, Workload
from targets import HardwareModel


class Injective(Rule):
    """One loop nest per output, everything before it inlined."""

    name = "injective"
    processor = CPU
    version = 4
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
        strips = (0, 4, 8, 16) if any(_strided(stage) for stage in workload.stages) else (0,)
        return {"vectors": (1, 2, 4), "strip": strips}

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """True: every combination of values gives a program."""
        return True

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Inlines producers and vectorises what is left along contiguous memory."""
        schedule = sampler.schedule
        for name in inline_chain(schedule, [stage.name for stage in workload.stages]):
            stage = workload.stage(name)
            conditional = any(s.kind == "padding" for s in workload.stages)
            self._schedule_output(sampler, stage, _flat(workload, stage), conditional, hardware, threads)

    @staticmethod
    def _schedule_output(
        sampler: Sampler, stage: Stage, flat: bool, conditional: bool, hardware: HardwareModel, threads: int
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
        strided = _strided_loop(stage)
        if strip and strided is not None and not flat:
            outer, inner = schedule.split(loops[strided], [None, sampler.sample("strip")])
            last = vectorise(schedule, loops[-1], width, conditional)
            if last is not None:
                schedule.reorder(outer, *loops[strided + 1 : -1], last, inner)
                loops = [*loops[:strided], outer]
            else:
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


def _strided(stage: Stage) -> bool:
    return _strided_loop(stage) is not None


def _strided_loop(stage: Stage) -> int | None:
    """The axis along which an input is contiguous while the output is not: the other side of a transpose."""
    last = len(stage.axes) - 1
    for access in stage.reads:
        if access.strides[last] > 1:
            for axis in range(last):
                if access.strides[axis] == 1 and stage.axes[axis].extent > 1:
                    return axis
    return None


RULE = Injective()
