"""The estimate behind every benefit: seconds of one call from the hardware model, nothing measured.

T(s) = max(compute, traffic of each level / its bandwidth) + a share of what overlaps badly, times the
imbalance of parallel chunks (roofline, with Roller's traffic, OSDI'22). Register interleave enters through
the latency of dependent operations, associativity through rows that fall into one cache set. Terms other
than traffic and imbalance are ours; the paper's exact expressions are not public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from host.schedules.cpu.dot.cost import dot_seconds
from host.schedules.cpu.tiled.cost import tiled_seconds
from host.schedules.cpu.traffic import resident_level
from host.schedules.cpu.winograd.cost import winograd_seconds
from host.schedules.cuda.streams import cuda_injective_seconds, cuda_rowwise_seconds
from host.schedules.cuda.tiled.cost import cuda_tiled_seconds
from host.schedules.design import Decisions, DesignSpace
from host.schedules.workload import Stage
from targets import HardwareModel

# Time of one vector of a transcendental function written as a polynomial, in vector operations.
_OPERATIONS_PER_CYCLE = 2.0
_CUDA: dict[str, Callable[[DesignSpace, Decisions], float]] = {
    "cuda_tiled": cuda_tiled_seconds,
    "cuda_rowwise": cuda_rowwise_seconds,
    "cuda_injective": cuda_injective_seconds,
}


def estimate_seconds(space: DesignSpace, values: Decisions) -> float:
    """Estimated seconds of one call of the program with these decisions."""
    if space.threads_of(values) != space.threads:
        space = replace(space, threads=space.threads_of(values))
    if space.rule.name == "tiled":
        return tiled_seconds(space, values)
    if space.rule.name == "dot":
        return dot_seconds(space, values)
    if space.rule.name == "winograd":
        return winograd_seconds(space, values)
    if space.rule.name in _CUDA:
        return _CUDA[space.rule.name](space, values)
    total = 0.0
    for stage in space.workload.stages:
        total += _streamed_seconds(stage, space.hardware, values)
    return _shared(total, space)


def _streamed_seconds(stage: Stage, hardware: HardwareModel, values: Decisions) -> float:
    """Seconds of a stage that walks through its buffers once."""
    lanes = hardware.lanes if stage.write.strides[stage.spatial[-1]] == 1 else 1
    if stage.reduction:
        partials = values.get("partials", 0)
        lanes = hardware.lanes if partials else 1
        # A dependent chain of additions waits for each result; several partial results hide that.
        waits = hardware.fma_latency_cycles / max(1, partials)
        compute = stage.points / lanes * max(waits, stage.flops_per_point / _OPERATIONS_PER_CYCLE)
    else:
        compute = stage.points / lanes * max(1.0, stage.flops_per_point / _OPERATIONS_PER_CYCLE)
        compute /= 1.0 + 0.05 * min(values.get("vectors", 1), 4)
    seconds = compute / hardware.frequency_hz
    for access in (*stage.reads, stage.write):
        size = min(access.elements, stage.points) * access.element_bytes
        level = resident_level(hardware.levels, size)
        wasted = 1.0
        last = access.strides[len(stage.axes) - 1]
        if abs(last) > 1 and not values.get("strip", 0):
            wasted = min(level.line_bytes / access.element_bytes, abs(last))
        elif abs(last) > 1:
            wasted = max(1.0, level.line_bytes / access.element_bytes / values["strip"])
        seconds = max(seconds, size * wasted / level.bandwidth_bytes_per_s)
    return seconds


def _shared(seconds: float, space: DesignSpace) -> float:
    if space.threads <= 1:
        return seconds
    return seconds / space.threads + space.hardware.parallel_launch_s
