"""A tuning in the benchmark of learning: its programs follow what it measured."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

from benchmarks.learning.tuned import tuned_programs
from benchmarks.modelled_boards.draws import Program
from benchmarks.modelled_boards.judging import Judge
from host.schedules import DesignSpace
from host.tuning.proposers.bayesian import Source
from host.tuning.proposers.random_sampling import RandomSampling
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.tuning.simulated import dense_space, profile

SPACE = dense_space("tuned")
BEGIN = [SPACE.sample(random.Random(number)) for number in range(2)]


class Truth(Judge):
    """Programs take what a function says; those for which it says nothing fail."""

    def __init__(self, seconds: Callable[[Program], float | None]) -> None:
        self._truth = seconds
        self.asked: list[Program] = []

    def seconds(self, space: DesignSpace, chosen: Mapping[str, Program]) -> dict[str, float]:
        self.asked += chosen.values()
        times = {name: self._truth(values) for name, values in chosen.items()}
        return {name: seconds for name, seconds in times.items() if seconds is not None}


def tuned(judge: Judge) -> list[Program]:
    sources = [Source(RandomSampling(8), 24)]
    return tuned_programs(judge, SPACE, profile(), observed(tall_is_slow), sources, BEGIN, 0)


def test_a_tuning_begins_with_its_program_and_measures_none_twice() -> None:
    judge = Truth(lambda values: tall_is_slow(SPACE, values))
    order = tuned(judge)
    assert order[0] == BEGIN[-1]
    assert len(order) == 33
    assert len({tuple(sorted(one.items())) for one in order}) == 33
    assert judge.asked == [BEGIN[0], *order]


def test_later_programs_follow_the_times_of_earlier_ones() -> None:
    def tall_is_fast(values: Program) -> float:
        return SPACE.estimate_s(values) / (1.0 + 0.8 * math.log2(values["rows"]))

    low = tuned(Truth(lambda values: tall_is_slow(SPACE, values)))
    tall = tuned(Truth(tall_is_fast))
    assert low[0] == tall[0]
    rows = [math.prod(one["rows"] for one in order[3:]) for order in (low, tall)]
    assert rows[0] < rows[1]


def test_a_program_that_fails_is_not_measured_again() -> None:
    judge = Truth(lambda values: tall_is_slow(SPACE, values) if values in BEGIN else None)
    order = tuned(judge)
    assert len({tuple(sorted(one.items())) for one in order}) == len(order) > 10
