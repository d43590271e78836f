"""T_hat of programs whose parts are decided apart: what is learned of the parts' rule corrects the whole."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.evidence import Evidence, convincing_rules, evidence_for
from host.learned_estimate.joined import parts_of, with_part_rules
from host.learned_estimate.observation import EstimatedProgram, Observation
from host.learned_estimate.process import RuleProcess
from host.learned_estimate.taught import BuiltKernel, taught_about
from host.schedules import DesignSpace
from host.schedules.design import TOTAL
from host.statistics import Estimate
from tests.unit.learned_estimate.test_estimate import drawn
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.schedules.cpu.test_chain import chain_space
from tests.unit.tuning.simulated import profile


@cache
def _chain(name: str = "three parts", threads: int = 1) -> DesignSpace:
    return chain_space(name, threads)[0]


def _seconds(space: DesignSpace, values: dict[str, int]) -> float:
    """Tall tiles are slow in every part."""
    flat, total, estimated = list(values.values()), 0.0, 0.0
    for part in space.parts:
        own = dict(zip((one.name for one in part.decisions), flat, strict=False))
        total += tall_is_slow(part, own)
        estimated += part.estimate_s(own)
        flat = flat[len(own) :]
    return space.estimate_s(values) * total / estimated


def _error(estimate: LearnedEstimate, space: DesignSpace, programs: list[dict[str, int]]) -> float:
    """Spread of the estimated over the true times, in logarithms: what matters for an order."""
    truth = np.log([_seconds(space, values) for values in programs])
    return float(np.std(estimate.means(space, programs) - truth))


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_known_of_the_parts_rule_orders_chains(threads: int) -> None:
    space = _chain(threads=threads)
    programs = drawn(space, 40)
    taught = LearnedEstimate(observed(tall_is_slow))
    assert _error(taught, space, programs) < 0.75 * _error(LearnedEstimate(()), space, programs)
    prediction = taught.predict(space, programs)
    assert prediction.mean == pytest.approx(taught.means(space, programs))
    assert [taught.cost_s(space, one) for one in programs[:3]] == pytest.approx(
        list(np.exp(prediction.mean[:3]))
    )


def test_without_records_of_their_rule_parts_change_nothing() -> None:
    space = _chain()
    programs = drawn(space, 5)
    elsewhere = [replace(one, rule="rowwise") for one in observed(tall_is_slow, tasks=2)]
    for known in ((), elsewhere):
        found = LearnedEstimate(known).means(space, programs)
        assert found == pytest.approx(np.log([space.estimate_s(values) for values in programs]))


def test_a_part_is_a_program_of_its_rule_with_its_share_of_the_estimate() -> None:
    space = _chain("two parts with stride 2")
    [values] = drawn(space, 1)
    program = EstimatedProgram.of(space, values)
    parts = parts_of("chain", program)
    assert [rule for rule, _ in parts] == ["tiled", "tiled"]
    assert len({one.task for _, one in parts}) == 2
    for part, (_, own) in zip(space.parts, parts, strict=True):
        assert own.estimated_s == pytest.approx(part.estimated(own.values))
    whole = space.workload.bands * sum(own.estimate_s for _, own in parts)
    # What a part of a band takes beside its loops belongs to no part.
    assert whole == pytest.approx(program.estimate_s, rel=0.2) and whole < program.estimate_s
    assert parts_of("tiled", program) == []
    # A record of before says what the whole was estimated at alone.
    old = replace(program, estimated_s={TOTAL: program.estimate_s})
    assert parts_of("chain", old) == []
    assert with_part_rules(["chain", "rowwise"]) == {"chain", "tiled", "rowwise"}


def test_times_of_parts_that_no_program_takes_teach_nothing() -> None:
    """Records may be from elsewhere; sums of such times would be infinite, and all estimates no number."""
    space = _chain()
    programs = drawn(space, 8)
    parts = {f"{prefix}{TOTAL}": 1e308 for prefix in space.rule.part_rules}
    known = [Observation.of(space, values, _seconds(space, values)) for values in programs]
    hostile = [
        replace(one, program=replace(one.program, estimated_s={**one.program.estimated_s, **parts}))
        for one in known[:2]
    ]
    assert parts_of("chain", hostile[0].program) == []
    taught = LearnedEstimate([*observed(tall_is_slow, tasks=2), *hostile, *known[2:]])
    assert np.isfinite(taught.means(space, programs)).all()


def test_chains_teach_what_their_parts_leave_out() -> None:
    space = _chain()
    programs = drawn(space, 40)
    parts = observed(tall_is_slow)
    own = [Observation.of(space, values, 3.0 * _seconds(space, values)) for values in programs[:20]]
    taught = LearnedEstimate([*parts, *own])
    unknown = programs[20:]
    off = taught.means(space, unknown) - np.log([3.0 * _seconds(space, values) for values in unknown])
    assert abs(float(np.median(off))) < 0.1
    assert float(np.std(off)) < _error(LearnedEstimate(parts), space, unknown)
    # The shares of parts are those of their own rule's processes, and no features of a chain's.
    assert taught.processes["chain"].points([one.program for one in own]).parts.shape == (20, 0)


def test_withheld_programs_are_judged_with_what_is_known_of_their_parts() -> None:
    space = _chain()
    known = [Observation.of(space, values, _seconds(space, values)) for values in drawn(space, 12)]
    logs = np.log([one.seconds / one.program.estimate_s for one in known])
    corrected = RuleProcess(known, corrections=lambda programs: logs)
    [(mean, _)] = corrected.withheld([np.arange(6)])
    assert mean == pytest.approx(logs[:6])
    [(plain, _)] = RuleProcess(known).withheld([np.arange(6)])
    assert np.abs(plain - logs[:6]).max() > 0.05


def _evidence(rule: str, tasks: int, bound: float) -> Evidence:
    return Evidence(rule, Estimate(1.1, 1.0, 1.2, n=tasks), 100, agreement=bound, agreement_bound=bound)


def test_chains_are_chosen_by_their_parts_evidence_until_they_have_their_own() -> None:
    good, bad = _evidence("tiled", 8, 0.5), _evidence("tiled", 8, 0.0)
    assert convincing_rules([good]) == {"tiled", "chain"}
    assert convincing_rules([bad]) == set()
    few, refused = _evidence("chain", 2, 0.9), _evidence("chain", 8, 0.0)
    assert convincing_rules([good, few]) == {"tiled", "chain"}
    assert convincing_rules([good, refused]) == {"tiled"}
    assert convincing_rules([bad, _evidence("chain", 8, 0.5)]) == {"chain"}


def test_explain_says_what_is_known_of_a_chain_by_its_parts() -> None:
    space = _chain()
    values = max(drawn(space, 20), key=lambda one: _seconds(space, one) / space.estimate_s(one))
    taught = taught_about([BuiltKernel("chain", 1, space, values)], observed(tall_is_slow), profile(), 0)
    assert [one.rule for one in taught.evidence] == ["tiled"] and taught.evidence[0].convinces
    [kernel] = taught.kernels
    assert kernel.learned_s > 1.1 * kernel.estimate_s
    changed = {name: after for name, _, after in kernel.changed}
    assert _seconds(space, {**values, **changed}) < _seconds(space, values)
    assert math.isfinite(kernel.gain) and kernel.gain > 1.0


def test_the_evidence_of_the_parts_rule_is_its_own() -> None:
    own = [Observation.of(_chain(), values, _seconds(_chain(), values)) for values in drawn(_chain(), 12)]
    found = {one.rule: one for one in evidence_for(LearnedEstimate([*observed(tall_is_slow), *own]))}
    alone = {one.rule: one for one in evidence_for(LearnedEstimate(observed(tall_is_slow)))}
    assert found["tiled"] == alone["tiled"] and found["chain"].speed.n == 1
