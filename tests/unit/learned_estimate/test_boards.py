"""What other boards have measured teaches as far as they are alike, and judges nothing."""

from __future__ import annotations

from dataclasses import replace

from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.evidence import evidence_of
from host.learned_estimate.observation import Observation
from host.learned_estimate.process import RuleProcess
from tests.unit.learned_estimate.test_estimate import SPACE, drawn, error, observations
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.tuning.simulated import dense_space


def _elsewhere(opposite: bool) -> list[Observation]:
    """Programs of other tasks on another board, which is like this one or its opposite."""
    known = [
        one
        for number in range(4)
        for one in observations(dense_space(f"other{number}"), drawn(SPACE, 30, seed=number))
    ]
    found = []
    for one in known:
        estimate = one.program.estimate_s
        seconds = estimate**2 / one.seconds if opposite else one.seconds
        found.append(replace(one, seconds=seconds, board="another"))
    return found


def test_a_board_that_is_alike_teaches_and_its_opposite_is_not_believed() -> None:
    programs = drawn(SPACE, 60)
    few, unknown = observations(SPACE, programs[:12]), programs[30:]
    alone = error(LearnedEstimate(few), SPACE, unknown)
    alike = LearnedEstimate([*_elsewhere(opposite=False), *few])
    opposite = LearnedEstimate([*_elsewhere(opposite=True), *few])
    assert error(alike, SPACE, unknown) < 0.9 * alone
    assert error(opposite, SPACE, unknown) < 1.1 * alone
    [rule] = alike.processes
    assert alike.processes[rule].scales.shared > opposite.processes[rule].scales.shared


def test_evidence_is_judged_by_this_board_alone() -> None:
    here = observed(tall_is_slow)
    elsewhere = [replace(one, board="another", seconds=one.seconds * 3.0) for one in here]
    assert evidence_of(RuleProcess(elsewhere)).speed.n <= 1
    assert evidence_of(RuleProcess([*here, *elsewhere])).speed.n == evidence_of(RuleProcess(here)).speed.n
