"""A model's bundles for the processors of a board, and which of them measurements are spent on.

Where the compiler cannot express a model, its original runtime is deployed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host.compile.bundle_builder import BundleBuilder
from host.compile.static_model import Compiled
from host.compile.variants import Variant, compiled_for_gpu, tunes_gpu
from host.engines import engine_for_format
from host.errors import BuildError, ImportFailed, LoweringError, one_line
from host.model import ImportedModel, TimingPolicy
from host.options import DeployOptions

if TYPE_CHECKING:
    from host.tuning.result import TuneResult


@dataclass(frozen=True, eq=False)
class Processors:
    """What was compiled.

    Attributes:
        made: the model for the processor that the builder is for; None where it cannot be compiled.
        fallback: why not, and why its own runtime is used.
        on_gpu: the bundle for the board's GPU, with `--processor auto`.
        builder: that compiled the model, without what gave wrong outputs, and with the options of the
            deployment: for what else is compiled of it.
    """

    made: Compiled | None
    fallback: str
    on_gpu: Variant | None
    builder: BundleBuilder

    @property
    def tuning(self) -> TuneResult | None:
        """What was measured for kernels; None where nothing was."""
        on_gpu = self.on_gpu.tuning if self.on_gpu is not None else None
        return on_gpu or (self.made.tuning if self.made is not None else None)


def compile_for_processors(
    builder: BundleBuilder,
    options: DeployOptions,
    model: ImportedModel,
    timing: TimingPolicy,
    why_wrong: Callable[[Path], str],
) -> Processors:
    """Compile a model for one processor or, with `--processor auto`, for the CPU and the board's GPU.

    Trials and a budget are for the GPU where there is one; for the CPU where the GPU's bundle fails.

    Args:
        builder: of bundles for the CPU, or for the processor that was asked for.
        options: of the deployment.
        model: with its module.
        timing: of the device.
        why_wrong: runs a bundle on the device; returns why it cannot be deployed, "" where it can.

    Raises:
        ImportFailed, LoweringError, BuildError: the model cannot be compiled, with `--backend tvm`.
    """
    on_gpu_alone = tunes_gpu(options, builder.compiler.profile, timing)
    on_cpu = _untuned(builder, options) if on_gpu_alone else builder
    made, fallback, used = _right(on_cpu, model, why_wrong)
    auto = made is not None and options.processor == "auto"
    on_gpu = compiled_for_gpu(builder, model, timing) if auto else None
    if on_gpu_alone and made is not None and on_gpu is None:
        shutil.rmtree(builder.directory("tvm"))
        made, fallback, used = _right(builder, model, why_wrong)
    used = replace(used, compiler=replace(used.compiler, options=builder.compiler.options))
    return Processors(made, fallback, on_gpu, used)


def _right(
    builder: BundleBuilder, model: ImportedModel, why_wrong: Callable[[Path], str]
) -> tuple[Compiled | None, str, BundleBuilder]:
    """As `compile_or_fall_back`, without what is less exact where the outputs are wrong with it.

    A plan on record may have been measured with other weights, for which its algorithms were exact enough.
    How far sums in halves are off is known of one sum, and not of what a model makes of it.

    Returns:
        Also the builder without that.
    """
    made, fallback = compile_or_fall_back(builder, model)
    for less_exact in (_plan_on_record, _sums_in_halves):
        left_out = less_exact(builder, made) if made is not None else None
        if left_out is None:
            continue
        directory = builder.directory("tvm")
        why = why_wrong(directory)
        if not why:
            break
        what, builder = left_out
        builder.compiler.clock.progress.note(f"{what} left out: {why}")
        shutil.rmtree(directory)
        made, fallback = compile_or_fall_back(builder, model)
    return made, fallback, builder


def _plan_on_record(builder: BundleBuilder, made: Compiled) -> tuple[str, BundleBuilder] | None:
    """What a note says of it, and the builder without it; None where there is none."""
    found = builder.compiler.recalled(made.lowered)
    return ("the plan on record is", builder.by_the_passes()) if found else None


def _sums_in_halves(builder: BundleBuilder, made: Compiled) -> tuple[str, BundleBuilder] | None:
    """As `_plan_on_record`."""
    from host.tensor_ir.halves import multiplies_halves

    able = builder.compiler.profile.hardware.half_arithmetic
    found = able and any(multiplies_halves(task.function) for task in made.lowered.tasks)
    return ("sums in halves are", builder.in_single_precision()) if found else None


def _untuned(builder: BundleBuilder, options: DeployOptions) -> BundleBuilder:
    untuned = replace(options, trials=0, budget_s=0.0, method="auto")
    return replace(builder, compiler=replace(builder.compiler, options=untuned))


def compile_or_fall_back(builder: BundleBuilder, model: ImportedModel) -> tuple[Compiled | None, str]:
    """Compile the model and write the bundle; returns the compiled model, or None and the reason.

    Raises:
        ImportFailed, LoweringError, BuildError: the model cannot be compiled, with `--backend tvm`.
    """
    compiler = builder.compiler
    if compiler.options.backend not in ("auto", "tvm"):
        return None, f"--backend {compiler.options.backend} was asked for"
    try:
        return builder.compile(model), ""
    except (ImportFailed, LoweringError, BuildError) as error:
        # What another runtime takes is not known, so none is installed under a cap.
        if compiler.options.backend == "tvm" or compiler.options.memory_cap_bytes:
            raise
        if not engine_for_format(model.format).peer:
            raise
        reason = one_line(error)
        compiler.clock.progress.note(
            f"the model cannot be compiled, so its original runtime is used: {reason}"
        )
        return None, reason
