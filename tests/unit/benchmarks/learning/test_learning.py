"""What learning adds on a machine: how arms order programs, and what is made of their times."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import tvm

from benchmarks.learning.__main__ import PAIRS, figures_of, judged_arms
from benchmarks.learning.arms import ordered, programs_of_arms
from benchmarks.learning.rows import TaskRow, judged_of
from benchmarks.learning.space_sizes import LARGE, board_and_type, row_of, size_of, spaces_of
from benchmarks.learning.space_sizes import figures_of as space_figures
from benchmarks.learning.tuned import TUNED, tuned_programs
from benchmarks.modelled_boards.choices import programs_in
from benchmarks.modelled_boards.draws import Program, random_programs
from benchmarks.modelled_boards.figures import Judged
from benchmarks.modelled_boards.judging import Judge
from host.errors import TlmError
from host.learned_estimate.estimate import LearnedEstimate
from host.learned_estimate.observation import values_of
from host.model import Candidate
from host.schedules import DesignSpace
from host.schedules.proposer import Estimate
from host.tlm.model.network import new_model, save_model
from host.tlm.proposer import Tlm
from host.tuning.proposers.bayesian import Source
from host.tuning.proposers.random_sampling import RandomSampling
from tests.unit.learned_estimate.test_evidence import observed, tall_is_slow
from tests.unit.lowering.harness import imported, relax_module
from tests.unit.lowering.test_bands import Shape, small_board
from tests.unit.tlm.learning import SIZE, VOCABULARY
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
    arms = {
        "up": different[:3],
        "down": different[::-1],
        "failed": [different[2]],
        "gensor_t": different[1:2],
    }
    found = judged_arms(Judge(stopwatch, lambda line: None), SPACE, arms, (0, 1, 10))
    # Each program is timed once, in the order in which the arms name them; the third gives no time.
    assert len(stopwatch.timed) == 4
    assert found[0] == {"up": 1.0, "down": 4.0, "gensor_t": 2.0}
    # Gensor's first program is measured beside those of every arm.
    assert found[1] == {"up": 1.0, "down": 2.0, "failed": 2.0, "gensor_t": 2.0}
    assert found[10] == {"up": 1.0, "down": 1.0, "failed": 2.0, "gensor_t": 2.0}


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
    def speechless(*_: object) -> list[Candidate]:
        raise TlmError("its language has no token for this")

    model = SimpleNamespace(by=lambda _: SimpleNamespace(propose=speechless))
    arms = programs_of_arms(SPACE, profile(), LearnedEstimate([]), model, 0)  # type: ignore[arg-type]
    assert not any("tlm" in arm for arm in arms)
    assert arms["random32_t"][0] == min(arms["random"], key=SPACE.estimate_s)
    assert arms["gensor_that"] == arms["gensor_t"]


def test_the_language_model_writes_as_in_a_deployment(tmp_path: Path) -> None:
    save_model(new_model(VOCABULARY, SIZE, 0), tmp_path, VOCABULARY, SIZE, "", {})
    learned, device = LearnedEstimate(observed(tall_is_slow)), profile()
    arms = programs_of_arms(SPACE, device, learned, Tlm(tmp_path), 3)
    of_parts = {"exchanged_random32_that"}
    assert {arm for pair in PAIRS for arm in pair} == {*arms, *TUNED, *of_parts}
    estimates: dict[str, Estimate | None] = {
        "tlm_likelihood": None,
        "tlm32_t": DesignSpace.estimate_s,
        "tlm32_that": learned.cost_s,
    }
    for arm, estimate in estimates.items():
        written = Tlm(tmp_path, estimate=estimate).propose(SPACE, device, [], 32, 3)
        assert arms[arm] == [values_of(one) for one in written], arm
    # Without the learned estimate, that of the space alone ranks.
    assert set(programs_of_arms(SPACE, device, None, Tlm(tmp_path), 3)) == {
        arm for arm in arms if not arm.endswith("_that")
    }


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


def test_shares_are_of_the_best_that_any_number_of_measurements_found() -> None:
    def one(task: str, **seconds: float) -> Judged:
        return Judged("board", "network", task, "tiled", seconds)

    first = [one("a", tlm32_t=2.0, random32_t=4.0), one("b", tlm32_t=4.0), one("b", tlm32_t=1.0)]
    judged = {0: first, 10: [one("a", tlm32_t=1.0, random32_t=2.0), one("b", tlm32_t=1.0)]}
    found = figures_of(judged, {"a": 10.0, "b": 10.0})
    assert found["share_of_best"]["0"]["random32_t"]["all"] == pytest.approx(0.25)
    assert found["share_of_best"]["10"]["random32_t"]["all"] == pytest.approx(0.5)
    # Both seeds of task b have a share of 0.5 in the mean, as task a has.
    assert found["worst_share"]["0"]["tlm32_t"]["board"] == pytest.approx(0.5)
    assert found["worst_share"]["10"]["tlm32_t"]["all"] == pytest.approx(1.0)
    assert found["worst_share"]["0"]["random32_t"]["all"] == pytest.approx(0.25)


_BEGIN = [SPACE.sample(random.Random(number)) for number in range(2)]


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
    return tuned_programs(judge, SPACE, profile(), observed(tall_is_slow), sources, _BEGIN, 0)


def test_a_tuning_begins_with_its_program_and_measures_none_twice() -> None:
    judge = Truth(lambda values: tall_is_slow(SPACE, values))
    order = tuned(judge)
    assert order[0] == _BEGIN[-1]
    assert len(order) == 33
    assert len({tuple(sorted(one.items())) for one in order}) == 33
    assert judge.asked == [_BEGIN[0], *order]


def test_later_programs_follow_the_times_of_earlier_ones() -> None:
    def tall_is_fast(values: Program) -> float:
        return SPACE.estimate_s(values) / (1.0 + 0.8 * math.log2(values["rows"]))

    low = tuned(Truth(lambda values: tall_is_slow(SPACE, values)))
    tall = tuned(Truth(tall_is_fast))
    assert low[0] == tall[0]
    rows = [math.prod(one["rows"] for one in order[3:]) for order in (low, tall)]
    assert rows[0] < rows[1]


def test_a_program_that_fails_is_not_measured_again() -> None:
    judge = Truth(lambda values: tall_is_slow(SPACE, values) if values in _BEGIN else None)
    order = tuned(judge)
    assert len({tuple(sorted(one.items())) for one in order}) == len(order) > 10


def test_chains_in_bands_are_listed_if_they_are_wanted() -> None:
    shape = Shape()
    model = imported(relax_module(shape.build, shape.inputs))
    board = small_board(16 << 10)
    apart = list(spaces_of(model, board, "", 1, in_bands=False))
    every = list(spaces_of(model, board, "", 1, in_bands=True))
    assert "chain" not in {one.rule.name for one in apart}
    [chain] = [one for one in every if one.rule.name == "chain"]
    size = size_of(chain)
    assert size > LARGE
    row = row_of("board", "model", chain, size)
    assert (row["board"], row["model"]) == ("board", "model")
    assert (row["rule"], row["kind"]) == ("chain", "contraction")
    assert row["mflop"] == pytest.approx(chain.task.flops / 1e6, abs=0.1)
    assert row["programs"] == pytest.approx(size, rel=0.01)
    assert chain.task.workload_hash[:12] in row["task"]


def test_rules_are_counted_with_their_large_spaces() -> None:
    assert space_figures({"tiled": [10.0, 2e5, 30.0], "chain": [1e9]}) == {
        "chain": {"tasks": 1, "large": 1, "median": 1e9, "most": 1e9},
        "tiled": {"tasks": 3, "large": 1, "median": 30.0, "most": 2e5},
    }


@pytest.mark.parametrize(
    "name, gpu, half",
    [
        ("raspberry_pi_5", False, ""),
        ("jetson_orin_nano-gpu-fp16", True, "float16"),
        ("x86_64-v4-bf16", False, "bfloat16"),
    ],
)
def test_names_of_boards_have_the_gpu_and_the_type(name: str, gpu: bool, half: str) -> None:
    board, found = board_and_type(name)
    assert (board.hardware.gpu is not None, found) == (gpu, half)


def test_a_row_of_a_result_gives_its_times_again() -> None:
    seconds = {0: ({"tlm32_t": 1.0}, {"tlm32_t": 2.0}), 10: ({"tlm32_t": 0.5},)}
    row = TaskRow("task", "network", "chain", 1e9, seconds)
    again = TaskRow.read(json.loads(json.dumps(row.data())))
    assert again == row
    judged = judged_of([again], "board", (0, 10, 32))
    assert {budget: [one.seconds["tlm32_t"] for one in known] for budget, known in judged.items()} == {
        0: [1.0, 2.0],
        10: [0.5],
        32: [],
    }
    assert judged[0][0] == Judged("board", "network", "task", "chain", {"tlm32_t": 1.0})
