"""What learning adds on a machine: how arms order programs, and what is made of their times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import pytest
import tvm

from benchmarks.learning.__main__ import figures_of, judged_arms
from benchmarks.learning.arms import ordered, programs_of_arms
from benchmarks.modelled_boards.choices import programs_in, random_programs
from benchmarks.modelled_boards.figures import Judged
from benchmarks.modelled_boards.judging import Judge
from host.learned_estimate.estimate import LearnedEstimate
from host.schedules import DesignSpace
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.tuning.simulated import dense_space, profile

SPACE = dense_space("judged")


class Stopwatch:
    """Programs take as many seconds as they have been timed before, and a second; the third one fails."""

    rounds = 2

    def __init__(self) -> None:
        self.timed: list[str] = []

    def times(
        self, space: DesignSpace, functions: Mapping[str, tvm.tirx.PrimFunc], note: Callable[[str], None]
    ) -> Mapping[str, Sequence[float]]:
        found = {}
        for name in functions:
            self.timed.append(name)
            seconds = float(len(self.timed))
            found[name] = [seconds, seconds + 1.0] if len(self.timed) != 3 else [seconds]
        return found


def test_an_arm_ends_with_the_fastest_of_what_it_measures() -> None:
    stopwatch = Stopwatch()
    programs = random_programs(SPACE, 0)
    different = [one for number, one in enumerate(programs) if one not in programs[:number]][:4]
    arms = {"up": different[:3], "down": different[::-1], "failed": [different[2]]}
    found = judged_arms(Judge(stopwatch, lambda line: None), SPACE, arms, (0, 10))
    # Each program is timed once, in the order in which the arms name them; the third gives no time.
    assert len(stopwatch.timed) == 4
    assert found[0] == {"up": 1.0, "down": 4.0}
    assert found[10] == {"up": 1.0, "down": 1.0}


def test_programs_are_ordered_by_what_the_board_prefers() -> None:
    learned = LearnedEstimate(observed(tall_is_slow))
    programs = random_programs(SPACE, 1)
    by_estimate = [SPACE.estimate_s(one) for one in ordered(None, SPACE, programs)]
    assert by_estimate == sorted(by_estimate)
    seconds = [tall_is_slow(SPACE, one) for one in ordered(learned, SPACE, programs)]
    assert len(seconds) == len(programs)
    half = len(seconds) // 2
    assert sum(map(math.log, seconds[:half])) < sum(map(math.log, seconds[half:]))


def test_without_a_language_model_its_arms_are_left_out() -> None:
    model = SimpleNamespace(propose=lambda *_, **__: [])
    arms = programs_of_arms(SPACE, profile(), LearnedEstimate([]), model, 0)  # type: ignore[arg-type]
    assert not any(arm.startswith("tlm") for arm in arms)
    assert arms["random32_t"][0] == min(arms["random"], key=SPACE.estimate_s)
    assert arms["gensor_that"] == arms["gensor_t"]


def test_the_size_of_a_space_is_that_of_its_legal_programs() -> None:
    values = math.prod(len(decision.choices) for decision in SPACE.decisions)
    assert 0 < programs_in(SPACE) <= values


def test_figures_are_by_number_of_measurements_and_of_large_spaces() -> None:
    def one(task: str, slower: float) -> Judged:
        return Judged("board", "network", task, "tiled", {"tlm32_t": 1.0, "random32_t": slower})

    judged = {0: [one("small", 1.0), one("large", 4.0)], 10: [one("large", 2.0)]}
    found = figures_of(judged, {"small": 10.0, "large": 1e6})
    assert found["ratios"]["0"]["tlm32_t/random32_t"]["board"]["geomean"] == pytest.approx(2.0)
    assert found["large"]["ratios"]["0"]["tlm32_t/random32_t"]["board"]["geomean"] == pytest.approx(4.0)
    assert found["large"]["ratios"]["10"]["tlm32_t/random32_t"]["all"]["tasks"] == 1
    assert (found["tasks"], found["large_spaces"]) == (2, 1)
