from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from host.compile.model_compiler import ModelCompiler
from host.deploy import DeployOptions
from host.plans.estimate import PlanEstimator
from host.plans.plan import ModelPlan, subject_of
from host.plans.proposers import Space
from host.plans.records import PlanTrial, remember
from host.progress import Silence, StageClock
from host.records import RecordOrigin
from host.statistics import paired_ratio
from tests.unit.compare.samples import measurement
from tests.unit.plans.models import MODEL
from tests.unit.tuning.simulated import profile


def _compiler(folder: Path) -> ModelCompiler:
    options = DeployOptions(model=folder / "net.onnx", records=str(folder / "records.db"))
    return ModelCompiler(options, profile(), folder, StageClock(Silence()))


def _remember(
    compiler: ModelCompiler, plan_of_unknown_site: bool = False, objective: str = "latency"
) -> ModelPlan:
    own = compiler.lower(MODEL)
    space = Space(lambda _: own, own, PlanEstimator(profile()))
    proposed = space.passes()
    site = own.sites[0]
    value = 3 if plan_of_unknown_site else next(one for one in site.options if one != site.own)
    plan = ModelPlan(((site.name, value),))
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
    _remember(compiler, plan_of_unknown_site=True)
    assert ModelPlan.of(compiler.lower(MODEL).sites).is_own


def test_a_plan_that_was_taken_for_energy_is_not_taken_for_latency(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path)
    plan = _remember(compiler, objective="energy")
    assert ModelPlan.of(compiler.lower(MODEL).sites).is_own
    options = compiler.options
    assert isinstance(options, DeployOptions)
    frugal = replace(compiler, options=replace(options, objective="energy"))
    assert ModelPlan.of(frugal.lower(MODEL).sites) == plan
