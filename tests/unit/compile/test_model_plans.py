from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.model_plans import MeasuredPlans, compiled_plans, decided_plan
from host.compile.static_model import Compiled
from host.compile.variants import FASTEST, GPU
from host.deploy import DeployOptions
from host.deploy.processors import compile_for_processors
from host.errors import BuildError, UserError
from host.model import BOARD, EMULATOR
from host.plans.estimate import PlanEstimator
from host.plans.plan import OWN, ModelPlan, subject_of
from host.plans.proposers import Space
from host.plans.records import PlanTrial, remember
from host.progress import Silence, StageClock
from host.records import RecordOrigin
from host.statistics import paired_ratio
from tests.unit.compare.samples import measurement
from tests.unit.plans.models import MODEL, STRIDED_SECOND_LAYER
from tests.unit.tuning.simulated import profile


class _Notes(Silence):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def _compiler(folder: Path, notes: _Notes | None = None, **options: Any) -> ModelCompiler:
    asked = DeployOptions(model=folder / "net.onnx", records=str(folder / "records.db"), **options)
    return ModelCompiler(asked, profile(), folder, StageClock(notes or Silence()))


def _with_halves(folder: Path, notes: _Notes) -> BundleBuilder:
    """Of bundles with halves in memory, for a processor that computes with them."""
    compiler = _compiler(folder, notes, dtype="fp16")
    hardware = replace(compiler.profile.hardware, half_arithmetic=True)
    board = replace(compiler.profile.board, hardware=hardware)
    return BundleBuilder(replace(compiler, profile=replace(compiler.profile, hardware=hardware, board=board)))


def _sums_in_halves(made: Compiled) -> bool:
    return any("half_" in task.name for task in made.lowered.tasks)


def _algorithm(compiler: ModelCompiler, value: int) -> ModelPlan:
    """A plan on record, whose convolution is computed in another way: 0 is direct, 2 is Winograd 2x2."""
    site = next(one for one in compiler.lower(MODEL).sites if one.kind == "algorithm")
    assert site.own == 4
    return _remember(compiler, ModelPlan(((site.name, value),)))


def _remember(
    compiler: ModelCompiler, plan: ModelPlan | None = None, objective: str = "latency"
) -> ModelPlan:
    own = compiler.lower(MODEL)
    space = Space(lambda _: own, own, PlanEstimator(profile()))
    proposed = space.passes()
    site = own.sites[0]
    plan = plan or ModelPlan(((site.name, next(one for one in site.options if one != site.own)),))
    better = paired_ratio([0.9, 0.91, 0.89], [1.0, 1.0, 1.0])
    trial = PlanTrial(replace(proposed, plan=plan), measurement(1.0), better, True, objective)
    remember(compiler.options.records, subject_of(own), profile(), [trial], RecordOrigin())
    return plan


def test_the_plan_on_record_is_taken_without_measuring(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path)
    plan = _remember(compiler)
    assert ModelPlan.of(compiler.lower(MODEL).sites) == plan
    other = replace(compiler, profile=replace(compiler.profile, threads=2))
    assert ModelPlan.of(other.lower(MODEL).sites).is_own
    given = replace(compiler, model_plan=ModelPlan())
    assert ModelPlan.of(given.lower(MODEL).sites).is_own


def test_a_plan_on_record_that_cannot_be_is_left_out_and_said(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path)
    _remember(compiler, ModelPlan(((compiler.lower(MODEL).sites[0].name, 3),)))
    assert ModelPlan.of(compiler.lower(MODEL).sites).is_own


def test_a_plan_that_was_taken_for_energy_is_not_taken_for_latency(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path)
    plan = _remember(compiler, objective="energy")
    assert ModelPlan.of(compiler.lower(MODEL).sites).is_own
    options = compiler.options
    assert isinstance(options, DeployOptions)
    frugal = replace(compiler, options=replace(options, objective="energy"))
    assert ModelPlan.of(frugal.lower(MODEL).sites) == plan


def test_a_plan_on_record_that_takes_too_much_memory_is_left_out_and_said(tmp_path: Path) -> None:
    notes = _Notes()
    compiler = _compiler(tmp_path, notes, memory_cap_bytes=100_000)
    plan = _algorithm(compiler, 2)
    made = BundleBuilder(compiler).compile(MODEL)
    assert ModelPlan.of(made.lowered.sites).is_own and made.memory.peak_bytes < 100_000
    [said] = notes.said
    assert said.startswith("the plan on record is left out: ") and "memory" in said
    # One that was asked for is refused.
    with pytest.raises(BuildError):
        BundleBuilder(replace(compiler, model_plan=plan)).compile(MODEL)


def test_a_model_that_is_tuned_already_is_compiled_without_a_plan_that_does_not_fit(tmp_path: Path) -> None:
    notes = _Notes()
    compiler = _compiler(tmp_path, notes, memory_cap_bytes=100_000)
    _algorithm(compiler, 2)
    made = BundleBuilder(compiler).compile_planned(MODEL, compiler.plan(MODEL))
    assert ModelPlan.of(made.lowered.sites).is_own and "memory" in notes.said[0]
    assert (tmp_path / "tvm" / "lib.so").exists()


@pytest.mark.parametrize("why", ["", "it gives wrong outputs: 'y' differs by 0.5"])
def test_a_plan_on_record_whose_outputs_are_wrong_is_left_out_and_said(tmp_path: Path, why: str) -> None:
    notes, ran = _Notes(), []
    compiler = _compiler(tmp_path, notes)
    plan = _algorithm(compiler, 0)
    options = compiler.options
    assert isinstance(options, DeployOptions)

    def why_wrong(directory: Path) -> str:
        ran.append((directory / "lib.so").read_bytes())
        return why

    found = compile_for_processors(BundleBuilder(compiler), options, MODEL, BOARD, why_wrong)
    assert found.made is not None and len(ran) == 1
    assert ModelPlan.of(found.made.lowered.sites) == (OWN if why else plan)
    assert notes.said == ([f"the plan on record is left out: {why}"] if why else [])
    assert ((tmp_path / "tvm" / "lib.so").read_bytes() == ran[0]) == (not why)


@pytest.mark.parametrize("why", ["", "it gives wrong outputs: 'y' differs by 0.5"])
def test_sums_in_halves_whose_outputs_are_wrong_are_left_out_and_said(tmp_path: Path, why: str) -> None:
    notes = _Notes()
    builder = _with_halves(tmp_path, notes)
    options = builder.compiler.options
    assert isinstance(options, DeployOptions)
    found = compile_for_processors(builder, options, STRIDED_SECOND_LAYER, BOARD, lambda directory: why)
    assert found.made is not None
    assert _sums_in_halves(found.made) == (not why)
    assert notes.said == ([f"sums in halves are left out: {why}"] if why else [])
    # Plans that are measured beside it are compiled as it is.
    assert found.builder.compiler.options is options
    plans = compiled_plans(found.builder, STRIDED_SECOND_LAYER, found.made, 1, BOARD)
    assert plans.variants
    for variant in plans.variants:
        assert variant.made is not None and _sums_in_halves(variant.made) == (not why)


def test_a_model_without_sums_in_halves_is_not_run_for_them(tmp_path: Path) -> None:
    ran: list[Path] = []
    builder = _with_halves(tmp_path, _Notes())
    options = builder.compiler.options
    assert isinstance(options, DeployOptions)

    def why_wrong(directory: Path) -> str:
        ran.append(directory)
        return "it gives wrong outputs: 'y' differs by 0.5"

    found = compile_for_processors(builder, options, MODEL, BOARD, why_wrong)
    assert found.made is not None and not ran


def test_a_bundle_of_the_gpu_has_no_plan_of_the_cpu(tmp_path: Path) -> None:
    builder = BundleBuilder(_compiler(tmp_path))
    made = builder.compile(MODEL)
    assert decided_plan(builder, made, MeasuredPlans(), None, FASTEST) is not None
    assert decided_plan(builder, made, MeasuredPlans(), None, GPU) is None


def test_why_no_plan_is_measured_is_said(tmp_path: Path) -> None:
    notes = _Notes()
    builder = BundleBuilder(_compiler(tmp_path, notes))
    made = builder.compile(MODEL)
    closed = replace(made, lowered=replace(made.lowered, sites=()))
    for model, timing in ((None, BOARD), (made, EMULATOR), (closed, BOARD)):
        assert not compiled_plans(builder, MODEL, model, 2, timing).variants
        assert not compiled_plans(builder, MODEL, model, 0, timing).variants
    emulated = f"{profile().device} is emulated, and its times do not say which is faster"
    assert notes.said == [
        f"--plans 2: no plan is measured: {why}"
        for why in ("the model is not compiled", emulated, "this model leaves none open")
    ]


def test_plans_are_not_for_the_gpu() -> None:
    with pytest.raises(UserError, match="--plans is for the CPU"):
        DeployOptions(model=Path("m.onnx"), plans=1, processor="gpu").check()
