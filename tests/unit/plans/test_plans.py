from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from host.errors import LoweringError
from host.lowering import lower
from host.model import Site
from host.plans.estimate import PlanEstimator
from host.plans.outcome import outcome_of
from host.plans.plan import OWN, PLAN_RULE, ModelPlan, subject_of
from host.plans.proposers import CHANCE, ESTIMATE, Space, _least_sums, at_random, by_estimate
from host.plans.records import PlanTrial, remember, remembered
from host.records import RecordOrigin, RecordStore
from host.statistics import Estimate, paired_ratio
from targets import Board
from tests.unit.compare.samples import measurement
from tests.unit.lowering.harness import Build, board, imported, normal, relax_module, run_lowered, weight
from tests.unit.plans.models import INPUTS, lowered, network, space
from tests.unit.tuning.simulated import profile


@pytest.fixture(scope="module")
def plans() -> Space:
    return space()


def test_a_model_without_a_plan_is_what_the_passes_make() -> None:
    own = lowered()
    assert [site.kind for site in own.sites] == ["lanes", "algorithm"]
    assert all(site.taken == site.own for site in own.sites)
    assert ModelPlan.of(own.sites) == OWN
    again = lowered({site.name: site.own for site in own.sites})
    assert [task.workload_hash for task in again.tasks] == [task.workload_hash for task in own.tasks]


def _check_every_option(build: Build, inputs: list[np.ndarray], on: Board, kinds: set[str]) -> None:
    """Each decision alone changes its site, and the results stay."""
    model = imported(relax_module(build, inputs))
    own = lower(model, on)
    assert {site.kind for site in own.sites} == kinds
    [wanted] = run_lowered(own, inputs)
    for site in {site.alike: site for site in own.sites}.values():
        for option in site.options:
            if option == site.own:
                continue
            made = lower(model, on, decisions={site.name: option})
            assert {one.name: one.taken for one in made.sites}[site.name] == option
            assert [one.workload_hash for one in made.tasks] != [one.workload_hash for one in own.tasks]
            [found] = run_lowered(made, inputs)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_decision_about_a_convolution_changes_its_site_alone() -> None:
    _check_every_option(network, INPUTS, board(), {"lanes", "algorithm"})


def test_a_decision_about_sharing_a_kernel_changes_its_site_alone() -> None:
    def reads(b: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
        return b.emit(op.nn.softmax(b.emit(op.negative(x)), axis=-1))

    def turns(b: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
        return b.emit(op.permute_dims(b.emit(op.exp(x)), (1, 0)))

    _check_every_option(reads, [normal(6, 16)], board(), {"inputs"})
    _check_every_option(turns, [normal(6, 16)], board(), {"transpose"})


def test_a_decision_about_volumes_changes_its_site_alone() -> None:
    layout = {"data_layout": "NDHWC", "out_layout": "NDHWC", "padding": (1,) * 6}

    def build(b: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
        return b.emit(op.nn.conv3d(x, weight(16, 16, 3, 3, 3), **layout))

    _check_every_option(build, [normal(1, 4, 8, 8, 16)], board(), {"slices", "lanes", "algorithm"})


def test_a_value_that_a_site_does_not_have_is_refused() -> None:
    site = next(one for one in lowered().sites if one.kind == "algorithm")
    with pytest.raises(LoweringError, match="= 3, which is none of 0, 2, 4"):
        lowered({site.name: 3})


def test_a_plan_has_a_hash_a_version_and_a_trace() -> None:
    sites = [
        Site("a", "algorithm", (0, 2, 4), 4, 4, "algorithm 8x8"),
        Site("b", "algorithm", (0, 2, 4), 4, 2, "algorithm 4x4"),
        Site("c", "algorithm", (0, 2, 4), 4, 4, "algorithm 8x8"),
    ]
    plan = ModelPlan.of(sites)
    assert plan.decisions == (("b", 2),)
    assert plan.trace(sites) == (
        "algorithm 8x8: 2 times Winograd 4x4; algorithm 4x4: Winograd 2x2 (the passes: Winograd 4x4)"
    )
    assert len({plan.hash, OWN.hash, replace(plan, version=plan.version + 1).hash}) == 3
    assert not outcome_of([])


def test_the_subject_is_the_structure_and_not_the_plan() -> None:
    own = lowered()
    assert subject_of(own) == subject_of(lowered())
    site = next(one for one in own.sites if one.kind == "algorithm")
    assert subject_of(own) != subject_of(lowered({site.name: 0 if site.own else 4}))


def test_sums_come_in_their_order() -> None:
    rows = [[(0.0, 1), (2.0, 2), (5.0, 3)], [(-1.0, 1), (0.0, 2)], [(0.0, 1)]]
    found = list(_least_sums(rows))
    assert [total for total, _ in found] == sorted(a[0] + b[0] for a in rows[0] for b in rows[1])
    assert len({values for _, values in found}) == 6


def test_the_best_by_the_estimate_is_the_best_of_all(plans: Space) -> None:
    classes = plans.classes
    assert [one.alike.split()[0] for one in classes] == ["lanes", "algorithm"]
    every = [
        plans.proposed(values, ESTIMATE) for values in itertools.product(*(one.options for one in classes))
    ]
    seconds = sorted(one.estimate.total_s for one in every if one is not None and not one.plan.is_own)
    found = by_estimate(space(), 5)
    assert [one.estimate.total_s for one in found] == pytest.approx(seconds)
    assert not any(one.plan.is_own for one in found)


def test_chance_has_the_same_ranker_and_a_seed(plans: Space) -> None:
    found = at_random(plans, 2, 5)
    assert [one.plan for one in found] == [one.plan for one in at_random(plans, 2, 5)]
    assert {one.proposer for one in found} == {CHANCE}
    assert min(one.estimate.total_s for one in found) >= by_estimate(plans, 1)[0].estimate.total_s


def test_kernels_that_plans_share_are_estimated_once(plans: Space) -> None:
    by_estimate(plans, 2)
    known = plans.estimator.kernels
    by_estimate(plans, 2)
    assert plans.estimator.kernels == known


def test_an_estimate_is_the_sum_of_its_parts() -> None:
    def build(b: relax.BlockBuilder, x: relax.Expr) -> relax.Var:
        return b.emit(op.nn.softmax(b.emit(op.nn.softmax(x, axis=-1)), axis=-1))

    own = lower(imported(relax_module(build, [normal(64, 4096)])), board())
    estimator = PlanEstimator(profile())
    estimate = estimator.estimate(own)
    kernels = sum(task.weight * estimator.kernel_s(task) for task in own.tasks)
    assert estimate.kernels_s == pytest.approx(kernels)
    level = profile().hardware.level_of(64 * 4096 * 4)
    assert estimate.traffic_s == pytest.approx(2 * 64 * 4096 * 4 / level.bandwidth_bytes_per_s)
    assert estimate.total_s == pytest.approx(kernels + estimate.traffic_s + estimate.calls_s)
    shared = PlanEstimator(replace(profile(), threads=2)).estimate(own)
    assert shared.calls_s > estimate.calls_s > 0


FASTER = paired_ratio([0.9, 0.91, 0.89], [1.0, 1.0, 1.0])


def _trial(
    plans: Space, number: int, taken: bool, ratio: Estimate | None = None, **changed: Any
) -> PlanTrial:
    proposed = by_estimate(plans, 2)[number] if number >= 0 else plans.passes()
    return replace(PlanTrial(proposed, measurement(2.0), ratio, taken), **changed)


def test_the_plan_that_was_taken_last_is_remembered(plans: Space, tmp_path: Path) -> None:
    store, subject = tmp_path / "records.db", subject_of(plans.own)
    assert remembered(store, subject, profile()) is None
    trials = [_trial(plans, -1, False), _trial(plans, 0, True, FASTER), _trial(plans, 1, False, FASTER)]
    remember(store, subject, profile(), trials, RecordOrigin(model="net"))
    assert remembered(store, subject, profile()) == trials[1].proposed.plan
    assert remembered(store, "another", profile()) is None
    assert remembered(store, subject, replace(profile(), threads=2)) is None
    with RecordStore(store) as opened:
        records = list(opened)
    assert {one.candidate.rule for one in records} == {PLAN_RULE}
    assert records[1].measurement.conditions["plan"]["ratio"]["value"] == pytest.approx(FASTER.value)
    remember(store, subject, profile(), [_trial(plans, -1, True)], RecordOrigin())
    assert remembered(store, subject, profile()) == OWN


def test_a_plan_is_remembered_for_the_objective_that_it_was_taken_by(plans: Space, tmp_path: Path) -> None:
    store, subject = tmp_path / "records.db", subject_of(plans.own)
    trial = _trial(plans, 0, True, FASTER, objective="energy")
    remember(store, subject, profile(), [trial], RecordOrigin())
    assert remembered(store, subject, profile()) is None
    assert remembered(store, subject, profile(), "energy") == trial.proposed.plan
    site = replace(
        plans.own.sites[0], taken=plans.own.sites[0].options[-1], own=plans.own.sites[0].options[0]
    )
    outcome = outcome_of([site], "energy", trials=[trial])
    assert outcome is not None
    assert outcome.why == "it was measured as the one that needs least energy before, as a whole model"
    assert outcome.lines[1].endswith("of the energy before")


@pytest.mark.parametrize(
    "ratio",
    [
        None,
        Estimate(0.9, 0.8, None, 3),
        Estimate(0.9, 0.8, 1.0, 3),
        Estimate(0.97, 0.8, 0.95, 3),
        Estimate(0.9, -0.1, 0.95, 3),
        Estimate(True, 0.8, 0.95, 3),
        Estimate(0.9, 0.8, 10**400, 3),
    ],
)
def test_a_plan_that_is_not_shown_to_be_better_is_not_remembered(
    ratio: Estimate | None, plans: Space, tmp_path: Path
) -> None:
    store, subject = tmp_path / "records.db", subject_of(plans.own)
    remember(store, subject, profile(), [_trial(plans, 0, True, ratio)], RecordOrigin())
    assert remembered(store, subject, profile()) is None


def test_a_plan_of_a_device_that_was_slowed_down_is_not_remembered(plans: Space, tmp_path: Path) -> None:
    store, subject = tmp_path / "records.db", subject_of(plans.own)
    hot = replace(measurement(2.0), throttled=True)
    remember(store, subject, profile(), [_trial(plans, 0, True, FASTER, measurement=hot)], RecordOrigin())
    assert remembered(store, subject, profile()) is None


def test_a_record_that_is_imported_later_does_not_replace_a_later_comparison(
    plans: Space, tmp_path: Path
) -> None:
    store, subject = tmp_path / "records.db", subject_of(plans.own)
    remember(store, subject, profile(), [_trial(plans, 0, True, FASTER)], RecordOrigin())
    with RecordStore(store) as opened:
        [record] = list(opened)
        other = by_estimate(plans, 2)[1].plan.decisions
        opened.append(
            [
                replace(
                    record, candidate=replace(record.candidate, decisions=other), made_at="2026-01-02T03:04"
                )
            ]
        )
    assert remembered(store, subject, profile()) == by_estimate(plans, 2)[0].plan


def test_what_a_record_of_another_host_says_is_checked(plans: Space, tmp_path: Path) -> None:
    store, subject = tmp_path / "records.db", subject_of(plans.own)
    remember(store, subject, profile(), [_trial(plans, -1, True)], RecordOrigin())
    with RecordStore(store) as opened:
        [record] = list(opened)
        ratio = {"low": 0.8, "value": 0.9, "high": 0.95}
        found = {"plan": {"objective": "latency", "taken": True, "ratio": ratio}}
        candidate = replace(record.candidate, decisions=(("algorithm of x", (1, 2)),))
        shown = replace(record.measurement, conditions=found)
        opened.append([replace(record, candidate=candidate, measurement=shown, made_at="2027-01-02T03:04")])
    assert remembered(store, subject, profile()) == OWN
