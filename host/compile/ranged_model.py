"""A model over a range of lengths: its golden cases, and the way to one library for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from device_agent.contract.manifest import as_name
from host.compile.static_model import Compiled, defects_as, memory_use
from host.compile.task_outcome import TaskOutcome
from host.errors import LoweringError, ScheduleError, UserError, one_line
from host.model import (
    DeviceProfile,
    GoldenCase,
    ImportedModel,
    LengthRange,
    LoweredModel,
    Signature,
    Task,
    TensorSpec,
)
from host.options import CompileOptions, Size
from host.progress import StageClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from host.dynamic.kernels import Kernel
    from host.dynamic.model import SymbolicModel
    from host.dynamic.request import Dimension, Span
    from host.dynamic.source import Source

# Lengths to measure at where none are given, spread evenly by ratio from end to end.
_MEASURED = 4
# Lengths to verify at beside those: as many again spread by ratio, and the neighbours of both ends.
_VERIFIED = 8


@dataclass(frozen=True, eq=False)
class RangedModel(ImportedModel):
    """An imported model with one open dimension; it has no module of one length.

    Attributes:
        source: the open file; None once it is not needed any more.
        dimension: the open dimension.
    """

    source: Source | None = None
    dimension: Dimension | None = None


def read_ranged(options: CompileOptions, clock: StageClock) -> RangedModel:
    """Read a model file for a range of lengths, with golden cases at lengths all over it.

    Raises:
        UserError: not a model, of a format without open dimensions, or the range does not fit it.
        EngineError: its own runtime cannot run it at every length.
    """
    from host.dynamic import dimension_of
    from host.dynamic.source import open_source

    with clock.stage("import"):
        source = open_source(options.model, clock.progress.note)
        fixed = options.fixed_shapes()
        ranges = {name: _spans(shape) for name, shape in options.shapes.items() if name not in fixed}
        dimension = dimension_of(options.model.name, source.inputs, fixed, ranges)
        measured = _measured(options, dimension)
        verified = lengths_to_verify(dimension.low, dimension.high, measured)
        golden = source.golden(dimension, verified, options.seed)
        signature = _signature(source, dimension, golden, measured)
    return RangedModel(
        name=options.name or as_name(source.name),
        format=source.format,
        path=source.path,
        signature=signature,
        module=None,
        golden=golden,
        content_hash=source.hash_of(dimension),
        source=source,
        dimension=dimension,
    )


def _spans(shape: Sequence[Size]) -> tuple[Span, ...]:
    return tuple(size if isinstance(size, tuple) else (size, size) for size in shape)


def _measured(options: CompileOptions, dimension: Dimension) -> tuple[int, ...]:
    low, high = dimension.low, dimension.high
    for length in options.lengths:
        if not low <= length <= high:
            raise UserError(f"--lengths {length} is outside the range {dimension.name}={low}..{high}")
    return tuple(options.lengths) or spread(low, high, _MEASURED)


def spread(low: int, high: int, count: int) -> tuple[int, ...]:
    """At most so many lengths from end to end, evenly spread by ratio."""
    return tuple(sorted({round(float(n)) for n in np.geomspace(low, high, count)}))


def lengths_to_verify(low: int, high: int, measured: Sequence[int]) -> tuple[int, ...]:
    """Lengths at which outputs are compared with the original's before anything is installed.

    Both ends with their neighbours, the measured ones, and some between: none of them is a length that
    programs were made from, except by chance.
    """
    beside = {min(low + 1, high), max(high - 1, low)}
    return tuple(sorted({*measured, *beside, *spread(low, high, _VERIFIED)}))


def _signature(
    source: Source, dimension: Dimension, golden: Sequence[GoldenCase], measured: tuple[int, ...]
) -> Signature:
    greatest = dimension.shapes_at(dimension.high)
    inputs = tuple(
        TensorSpec(
            entry.name,
            greatest[entry.name],
            entry.dtype,
            tuple(axis for axis, size in enumerate(dimension.shapes[entry.name]) if size is None),
        )
        for entry in source.inputs
    )
    first, last = golden[0].outputs, golden[-1].outputs
    outputs = tuple(
        TensorSpec(
            name,
            long.shape,
            long.dtype.name,
            tuple(
                axis for axis, sizes in enumerate(zip(short.shape, long.shape, strict=True)) if _open(sizes)
            ),
        )
        for name, short, long in zip(source.outputs, first, last, strict=True)
    )
    return Signature(inputs, outputs, LengthRange(dimension.name, dimension.low, dimension.high, measured))


def _open(sizes: tuple[int, int]) -> bool:
    return sizes[0] != sizes[1]


def inputs_to_measure(signature: Signature, golden: Sequence[GoldenCase]) -> list[tuple[np.ndarray, ...]]:
    """The sets of inputs that a model is measured with: the first case's, or one at each measured length."""
    if signature.length is None:
        return [golden[0].inputs]
    return [inputs_at(signature, golden, length) for length in signature.length.measured]


def inputs_at(signature: Signature, golden: Sequence[GoldenCase], length: int) -> tuple[np.ndarray, ...]:
    """Inputs of one length: those of a golden case, or of the longest one cut short.

    Raises:
        UserError: longer than the longest case.
    """
    by_length = {signature.length_of([value.shape for value in case.inputs]): case for case in golden}
    if length in by_length:
        return by_length[length].inputs
    longest = max(by_length)
    if length > longest:
        raise UserError(f"--lengths {length}: the bundle has inputs of at most {longest} to measure with")
    return tuple(
        np.ascontiguousarray(value[tuple(slice(size) for size in spec.shape_at(length))])
        for spec, value in zip(signature.inputs, by_length[longest].inputs, strict=True)
    )


def compile_ranged(
    model: RangedModel, profile: DeviceProfile, seed: int, library: Path, clock: StageClock
) -> Compiled:
    """Lower a model at a few lengths, construct its kernels over the range, and link them.

    Raises:
        ImportFailed: the compiler cannot express the model.
        LoweringError: its structure depends on the length, or it has no lowering.
        BuildError: a kernel does not compile.
    """
    from host.build import KernelCache, build_model, cuda_major
    from host.dynamic.model import lower_over

    assert model.source is not None and model.dimension is not None
    with clock.stage("lower"), defects_as(LoweringError, f"lowering {model.name}"):
        symbolic = lower_over(model.source, model.dimension, profile.board, clock.progress.advance)
    with clock.stage("propose"):
        kernels = _kernels(symbolic, profile, seed, clock)
    with clock.stage("build"), defects_as(LoweringError, f"lowering {model.name}"):
        lowered = _lowered(symbolic, model.signature)
        stats = build_model(
            lowered,
            {name: kernel.function for name, kernel in kernels.items()},
            library,
            lambda done, total, _: clock.progress.advance(done, total),
            cache=KernelCache(),
            cuda_major=cuda_major(profile.software),
        )
    tasks = tuple(_outcome(task, kernels[task.name], stats.refused) for task in lowered.tasks)
    memory = memory_use(lowered, stats, profile.threads)
    return Compiled(replace(lowered, parameters=()), symbolic.parameters, library, tasks, memory)


def _kernels(
    symbolic: SymbolicModel, profile: DeviceProfile, seed: int, clock: StageClock
) -> dict[str, Kernel]:
    from host.dynamic.kernels import default_over, kernel_over
    from host.dynamic.own_length import with_length

    made: dict[str, Kernel] = {}
    for name, template in symbolic.functions.items():
        try:
            with defects_as(ScheduleError, name):
                made[name] = kernel_over(name, template, symbolic.own_dimension(name), profile, seed)
        except ScheduleError as error:
            default = default_over(name, template, one_line(error), profile.hardware.gpu is not None)
            made[name] = replace(default, function=with_length(default.function))
        clock.progress.advance(len(made), len(symbolic.functions))
    return made


def _lowered(symbolic: SymbolicModel, signature: Signature) -> LoweredModel:
    """The model with unscheduled functions over the length, each of them a task."""
    from tvm import tirx

    from host.dynamic.own_length import with_length
    from host.lowering.tasks import flops, workload_hash

    assert signature.length is not None
    plain = {
        name: with_length(template.over(tirx.Var("length", "int32")))
        for name, template in symbolic.functions.items()
    }
    # Work is counted at the length whose figures stand for all.
    shown = signature.length.measured[-1]
    tasks = tuple(
        Task(
            name,
            plain[name],
            symbolic.weights[name],
            workload_hash(template.at(symbolic.own_length(name, symbolic.dimension.high))),
            flops(template.at(symbolic.own_length(name, shown))),
            symbolic.layers[name],
        )
        for name, template in symbolic.functions.items()
    )
    module = symbolic.module(plain)
    return LoweredModel(
        symbolic.name,
        signature,
        module,
        symbolic.parameters,
        tasks,
        symbolic.target,
        calls=symbolic.calls,
    )


def _outcome(task: Task, kernel: Kernel, refused: Mapping[str, str]) -> TaskOutcome:
    default = task.name in refused or kernel.source == "default"
    return TaskOutcome(
        name=task.name,
        workload_hash=task.workload_hash,
        weight=task.weight,
        source="default" if default else kernel.source,
        rule="" if default else kernel.rule,
        decisions={} if default else dict(kernel.decisions or {}),
        reason=refused.get(task.name, kernel.reason),
        flops=task.flops,
        layers=task.layers,
        programs=1 if default else kernel.programs,
    )
