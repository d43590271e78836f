"""Whole spaces of simulated boards: what chance writes beside the language model."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gate.proposals import PAIRS, fine_tuned, programs_of_arms
from benchmarks.learning.__main__ import figures_of
from benchmarks.modelled_boards.draws import in_order, infilled_by_chance, random_programs
from benchmarks.modelled_boards.figures import Judged
from host.learned_estimate.estimate import LearnedEstimate
from host.schedules import DesignSpace
from host.tlm.model.card import read_card
from host.tlm.model.network import new_model, save_model
from host.tlm.proposer import Tlm
from host.tlm.training.fitting import LEARNED
from host.tlm.training.replay import REPLAY, write_replay
from tests.unit.benchmarks.gate.test_gate import _task
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.tlm.learning import SIZE, VOCABULARY
from tests.unit.tuning.simulated import dense_space

SPACE = dense_space("judged")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A network with random weights."""
    folder = tmp_path / "base"
    save_model(new_model(VOCABULARY, SIZE, 0), folder, VOCABULARY, SIZE, "", {})
    return folder


def test_chance_infills_near_the_best_of_its_draws() -> None:
    drawn = random_programs(SPACE, 3)[:24]
    found = infilled_by_chance(SPACE, DesignSpace.estimate_s, 3)
    assert found[:24] == drawn and 24 < len(found) <= 32
    best = min(drawn, key=SPACE.estimate_s)
    for one in found[24:]:
        assert sum(one[name] != best[name] for name in best) == 1
        assert one not in drawn and SPACE.legal(one)
    assert infilled_by_chance(SPACE, DesignSpace.estimate_s, 3) == found
    # The estimate decides near which program.
    slowest_first = infilled_by_chance(SPACE, lambda space, values: -space.estimate_s(values), 3)
    assert slowest_first[:24] == drawn and slowest_first[24:] != found[24:]


def test_every_arm_orders_as_many_programs_by_its_estimate(base: Path) -> None:
    learned = LearnedEstimate(observed(tall_is_slow))
    arms = programs_of_arms(SPACE, {"before": Tlm(base), "tlm": Tlm(base)}, learned, 0)
    assert {arm for pair in PAIRS for arm in pair} == set(arms)
    for arm, programs in arms.items():
        assert 0 < len({tuple(one.items()) for one in programs}) == len(programs) <= 32, arm
    assert arms["random32_t"][0] == min(arms["random32_t"], key=SPACE.estimate_s)
    assert sorted(map(str, arms["random32_that"])) == sorted(map(str, arms["random32_t"]))
    assert arms["random32_that"] != arms["random32_t"]
    assert arms["tlm32_t"] == arms["before32_t"] != arms["tlm32_that"]
    # Equal programs count once.
    assert in_order(SPACE, [arms["random32_t"][0]] * 3, DesignSpace.estimate_s) == arms["random32_t"][:1]


def test_a_network_learns_all_tasks_that_teach(base: Path, tmp_path: Path) -> None:
    tasks = [_task(number) for number in range(3)]
    write_replay(base / REPLAY, [one.example for one in tasks], 3, 0, VOCABULARY)
    card = read_card(fine_tuned(base, tasks, 0, tmp_path / "tuned"))
    assert card.weights != read_card(base).weights
    assert len(card.training[LEARNED]) == 3 and card.training["steps"] == 12


def test_figures_are_of_the_pairs_that_are_asked_for() -> None:
    seconds = {"tlm32_t": 1.0, "random32_t": 2.0, "before32_t": 4.0}
    judged = {0: [Judged("board 1", "", task, "tiled", seconds) for task in ("1/a", "1/b")]}
    found = figures_of(judged, {"1/a": 10.0, "1/b": 1e6}, PAIRS)
    assert found["ratios"]["0"]["tlm32_t/random32_t"]["all"]["geomean"] == pytest.approx(2.0)
    assert found["ratios"]["0"]["before32_t/random32_t"]["all"]["geomean"] == pytest.approx(0.5)
    assert found["large"]["ratios"]["0"]["tlm32_t/random32_t"]["all"]["tasks"] == 1
