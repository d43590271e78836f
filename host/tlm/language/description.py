"""Descriptions of board and task: exactly what a sentence contains."""

from __future__ import annotations

import math
from dataclasses import dataclass

from host.schedules.design import DesignSpace
from host.schedules.workload import Access, Stage
from host.tlm.language.vocabulary import CPU, GPU, LEVELS, WIDTHS
from targets import GpuModel, HardwareModel, MemoryLevel

# Accesses of the anchor that are described: its first reads and its write.
_READS = 2


def level_of(value: float, unit: float = 1.0) -> int:
    """A quantity on the scale of half octaves: round(2 log2(value / unit)), 0 for values below one unit."""
    if value <= unit:
        return 0
    return min(LEVELS - 1, round(2.0 * math.log2(value / unit)))


@dataclass(frozen=True)
class BoardDescription:
    """A processor.

    Attributes:
        kind: "cpu" or "gpu".
        figures: levels of its figures, in the order of `_cpu_figures` or `_gpu_figures`.
        memory: levels of capacity (1 KiB) and bandwidth (1 MB/s), innermost memory first.
    """

    kind: str
    figures: tuple[int, ...]
    memory: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class AxisDescription:
    """An axis of the anchor.

    Attributes:
        extent: iterations.
        reduce: whether values are combined along it.
        moves: how the first two reads and the write move with it, a letter of `vocabulary.MOVES` each.
    """

    extent: int
    reduce: bool
    moves: str


@dataclass(frozen=True)
class StageDescription:
    """A stage of the chain.

    Attributes:
        kind: as in `Stage`.
        expensive: whether it evaluates a transcendental function.
        anchor: whether it is the one that decides the structure.
        points: level of its iterations.
        reads: level of the elements that it reads of arguments of the function.
    """

    kind: str
    expensive: bool
    anchor: bool
    points: int
    reads: int


@dataclass(frozen=True)
class TaskDescription:
    """A task.

    Attributes:
        rule: the rule that makes its programs.
        widths: bytes of one element of the anchor's first two reads and of its write; 0 for none.
        axes: axes of the anchor.
        stages: the whole chain.
    """

    rule: str
    widths: tuple[int, int, int]
    axes: tuple[AxisDescription, ...]
    stages: tuple[StageDescription, ...]


def describe_board(hardware: HardwareModel, threads: int) -> BoardDescription:
    """The description of a processor, calibrated or as declared, for programs of some threads."""
    if hardware.gpu is not None:
        return BoardDescription(GPU, _gpu_figures(hardware.gpu), _memory(hardware.gpu.levels))
    return BoardDescription(CPU, _cpu_figures(hardware, threads), _memory(hardware.levels))


def describe_task(space: DesignSpace) -> TaskDescription:
    """The description of the task of a design space."""
    workload = space.workload
    anchor = workload.anchor_stage
    accesses = _described(anchor)
    first, second, write = (_width(access) for access in accesses)
    axes = tuple(
        AxisDescription(axis.extent, axis.reduce, "".join(_move(access, number) for access in accesses))
        for number, axis in enumerate(anchor.axes)
    )
    stages = tuple(_stage(stage, i == workload.anchor) for i, stage in enumerate(workload.stages))
    return TaskDescription(space.rule.name, (first, second, write), axes, stages)


def figure_count(kind: str) -> int:
    """How many figures the description of a processor of this kind has."""
    return _GPU_FIGURES if kind == GPU else _CPU_FIGURES


_CPU_FIGURES, _GPU_FIGURES = 11, 9


def _cpu_figures(hardware: HardwareModel, threads: int) -> tuple[int, ...]:
    return (
        level_of(threads),
        level_of(hardware.lanes),
        level_of(hardware.vector_registers),
        level_of(hardware.fma_per_cycle, 0.25),
        level_of(hardware.fma_latency_cycles),
        level_of(hardware.issue_width),
        level_of(hardware.loads_per_cycle, 0.25),
        level_of(hardware.look_ahead),
        level_of(hardware.frequency_hz, 1e6),
        level_of(hardware.peak_flops, 1e6),
        level_of(hardware.parallel_launch_s, 1e-9),
    )


def _gpu_figures(gpu: GpuModel) -> tuple[int, ...]:
    return (
        level_of(gpu.multiprocessors),
        level_of(gpu.fp32_per_cycle),
        level_of(gpu.frequency_hz, 1e6),
        level_of(gpu.peak_flops, 1e6),
        level_of(gpu.threads_per_multiprocessor),
        level_of(gpu.registers_per_multiprocessor),
        level_of(gpu.shared_per_multiprocessor, 1024),
        level_of(gpu.shared_per_block, 1024),
        level_of(gpu.launch_s, 1e-9),
    )


def _memory(levels: tuple[MemoryLevel, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (level_of(level.size_bytes, 1024), level_of(level.bandwidth_bytes_per_s, 1e6)) for level in levels
    )


def _described(anchor: Stage) -> tuple[Access | None, Access | None, Access]:
    reads: list[Access | None] = [*anchor.reads[:_READS]]
    reads += [None] * (_READS - len(reads))
    return reads[0], reads[1], anchor.write


def _width(access: Access | None) -> int:
    if access is None:
        return 0
    return max(width for width in WIDTHS if width <= max(1, access.element_bytes))


def _move(access: Access | None, axis: int) -> str:
    """How an access moves with an axis, as a letter of `vocabulary.MOVES`."""
    if access is None:
        return "-"
    if access.data_dependent:
        return "?"
    if len(access.moves[axis]) > 1:
        return "g"
    if access.strides[axis] == 0:
        return "-"
    if access.strides[axis] == 1:
        return "c"
    [move] = access.moves[axis]
    return "w" if max(abs(step) for _, step in move.moved) > 1 else "u"


def _stage(stage: Stage, anchor: bool) -> StageDescription:
    read = sum(min(access.elements, stage.points) for access in stage.reads if access.argument)
    return StageDescription(stage.kind, stage.expensive, anchor, level_of(stage.points), level_of(read))
