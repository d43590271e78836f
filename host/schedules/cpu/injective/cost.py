"""Estimated time of stages without reductions.

T = max(arithmetic, transfer of the largest buffer) + what is fetched more than once, of each stage. The order
of the loops decides what is fetched again, see `host.schedules.cpu.reuse`.
"""

from __future__ import annotations

from host.schedules.api import Decisions
from host.schedules.constants import EstimateConstant
from host.schedules.cpu.common import lanes_of
from host.schedules.cpu.injective.nest import nest_of, same_axes, strip_axis
from host.schedules.cpu.reuse import fetched_lines, lines_of
from host.schedules.cpu.streams import CONSTANTS as STREAM_CONSTANTS
from host.schedules.cpu.streams import elementwise_cycles, shared_seconds
from host.schedules.cpu.traffic import Loop
from host.schedules.workload import Stage, Workload
from targets import HardwareModel

# Cycles of an element that is put into a vector by itself: cores start one such insertion in a cycle.
_GATHERED = EstimateConstant("injective.gathered", 1.0)
# What the rows of a strip that are written at the same time cost, as a share of the insertions: prefetchers
# follow few streams, in ways that makers do not publish. A strip has to promise more than this.
_STRIP = EstimateConstant("injective.strip", 0.1)
# Lines that are fetched again are written back before, if they are written.
_WRITTEN_BACK = 2.0

CONSTANTS = (*STREAM_CONSTANTS, _GATHERED, _STRIP)


def injective_seconds(workload: Workload, hardware: HardwareModel, threads: int, values: Decisions) -> float:
    """Estimated seconds of one call of a program of the `injective` rule."""
    output = workload.stages[-1]
    axis = strip_axis(workload, output)
    lanes = lanes_of(hardware, output.write.element_bytes)
    total = 0.0
    for stage in workload.stages:
        own = axis if same_axes(stage, output) else None
        gathered = _gathered_cycles(stage, hardware) * (
            1.0 + (_STRIP.on(hardware) if values["strip"] else 0.0)
        )
        cycles = elementwise_cycles(stage, hardware, values["vectors"]) + gathered
        seconds = max(cycles / hardware.frequency_hz, _once_seconds(stage, hardware))
        total += seconds + _again_seconds(stage, hardware, nest_of(stage, lanes, own, values["strip"]))
    return shared_seconds(total, hardware, threads)


def _gathered_cycles(stage: Stage, hardware: HardwareModel) -> float:
    """Cycles in which vectors are put together of elements that are not neighbours."""
    last = len(stage.axes) - 1
    gathered = sum(1 for access in stage.reads if abs(access.strides[last]) > 1)
    return gathered * stage.points * _GATHERED.on(hardware)


def _once_seconds(stage: Stage, hardware: HardwareModel) -> float:
    """Seconds of the transfer of the buffer that takes longest, each byte once."""
    found = 0.0
    for access in (*stage.reads, stage.write):
        size = min(access.elements, stage.points) * access.element_bytes
        found = max(found, size / hardware.level_of(size).bandwidth_bytes_per_s)
    return found


def _again_seconds(stage: Stage, hardware: HardwareModel, nest: tuple[Loop, ...]) -> float:
    """Seconds of the transfers of lines that were in a level before."""
    accesses = (*stage.reads, stage.write)
    total = 0.0
    for number, (level, source) in enumerate(zip(hardware.levels, hardware.levels[1:], strict=False)):
        fetched = fetched_lines(accesses, nest, level, indexed=number == 0)
        once = [lines_of(access, nest, level.line_bytes) for access in accesses]
        again = [max(0.0, lines - first) for lines, first in zip(fetched, once, strict=True)]
        again[-1] *= _WRITTEN_BACK
        total += sum(again) * level.line_bytes / source.bandwidth_bytes_per_s
    return total
