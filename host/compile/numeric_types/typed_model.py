"""A model with the types that were found for its layers on a device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from host.compare.comparison import TIME_LIMIT_S, ComparisonSettings
from host.compare.verification import verify
from host.compile.bundle_builder import BundleBuilder
from host.compile.processor import fast_half
from host.errors import BuildError, EngineError, ImportFailed, LoweringError, SessionLost, one_line
from host.model import HALF_SPREADS, ImportedModel
from host.model.numeric_types import NumericTypes
from host.options import DeployOptions
from host.options.numeric_types import AUTO, half_of


@dataclass(frozen=True, eq=False)
class TypedModel:
    """A model whose layers have types.

    Attributes:
        builder: of its bundles, with the type and the plan that were found.
        model: with golden cases that allow the tolerance, where some layers are in half precision.
        options: of the deployment, with the type that was found.
        types: what was found; None where nothing was searched.
    """

    builder: BundleBuilder
    model: ImportedModel
    options: DeployOptions
    types: NumericTypes | None


def typed_model(
    builder: BundleBuilder, model: ImportedModel, settings: ComparisonSettings, options: DeployOptions
) -> TypedModel:
    """Search for the types of a model's layers, with `--dtype auto`; fp32 where it is not compiled.

    Args:
        builder: for a CPU with a fast type of half precision.
        model: with its module, or without where it cannot be compiled.
        settings: of the comparison of outputs with the golden cases.
        options: of the deployment; without a tolerance, outputs may be off by what the type usually is.

    Raises:
        DeviceError: the device went away.
    """
    if options.dtype != AUTO:
        return TypedModel(builder, model, options, None)
    from host.compile.numeric_types.search import TypeSearch

    compiler, note = builder.compiler, builder.compiler.clock.progress.note
    half = fast_half(compiler.profile.hardware)
    bound = options.tolerance or 2.0 * HALF_SPREADS[half_of(half)]
    plain = replace(options, dtype="fp32", tolerance=None)
    single = TypedModel(replace(builder, compiler=replace(compiler, options=plain)), model, plain, None)
    if options.backend not in ("auto", "tvm") or model.module is None:
        note("--dtype auto: the model is not compiled, and stays as it is")
        return single
    golden = tuple(replace(case, spread=max(case.spread, bound / 2.0)) for case in model.golden)
    loose = replace(model, golden=golden)

    def error(bundle: Path) -> float:
        return _error(bundle, settings, compiler.profile.threads)

    try:
        types, plan = TypeSearch(builder, loose, half, bound, error).run()
    except (ImportFailed, LoweringError, BuildError) as problem:
        note(f"--dtype auto: the types are not searched: {one_line(problem)}")
        return single
    if types.dtype == "fp32":
        return replace(single, types=types)
    # A GPU computes by other rules, of which nothing was found out.
    found = replace(options, dtype=half, processor="cpu", tolerance=None)
    compiled = replace(compiler, options=found, model_plan=plan)
    return TypedModel(replace(builder, compiler=compiled), loose, found, types)


def _error(bundle: Path, settings: ComparisonSettings, threads: int) -> float:
    """The largest max|a-b| / max|golden| of a bundle's outputs; infinite where it does not run.

    Raises:
        DeviceError: the device was lost.
    """
    try:
        with settings.device.open_session("tvm", threads, TIME_LIMIT_S) as session:
            session.load(bundle)
            verdict, _ = verify(session, settings.signature, settings.golden)
    except (EngineError, SessionLost):
        return math.inf
    return verdict.max_rel_err
