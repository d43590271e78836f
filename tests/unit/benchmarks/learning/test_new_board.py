"""A new board with few records: who teaches, who is judged, and how arms are compared."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from benchmarks.gate.recorded import RecordedTask
from benchmarks.modelled_boards.new_board import estimate_arms, few, halves, in_order
from benchmarks.modelled_boards.new_board_figures import figures_of, shares_of
from host.tlm.training.gate import Chosen
from tests.unit.benchmarks.gate.test_gate import _task


def _tasks() -> list[RecordedTask]:
    return [replace(_task(number), model=f"net{number % 4}") for number in range(24)]


def test_each_task_is_judged_once_by_what_other_networks_teach() -> None:
    parts = halves(_tasks())
    assert sorted(one.example.index for _, judged in parts for one in judged) == list(range(24))
    for teach, judged in parts:
        assert not {one.model for one in teach} & {one.model for one in judged} and teach


def test_a_new_board_has_measured_some_programs_of_a_task() -> None:
    task = _task(1)
    both = replace(task.example, programs=task.example.programs * 2, estimates=task.example.estimates * 2)
    known = few(replace(task, example=both, programs=task.programs * 2), random.Random(0))
    assert len(known.programs) == len(known.example.programs) == 18
    assert known.example.programs[0][1] == 1.0
    of = {decided: program for (decided, _), program in zip(both.programs, task.programs * 2, strict=True)}
    assert [of[decided] for decided, _ in known.example.programs] == list(known.programs)


def test_what_a_board_has_taught_is_ahead_and_shuffled_times_are_not() -> None:
    teach, judged = halves(_tasks())[0]
    others = {"other": halves(_tasks())[1][0]}
    arms = estimate_arms(teach, judged, others, 0)
    lines = [
        {
            "board": "b",
            "task": str(n),
            "model": judged[n].model,
            "times": {arm: (own[n].first, own[n].best) for arm, own in arms.items()},
        }
        for n in range(len(judged))
    ]
    ratios = figures_of(lines)["1"]
    assert ratios["that/t"]["all"]["low"] > 1.05
    assert ratios["that_shuffled/t"]["b"]["geomean"] < ratios["that/t"]["b"]["geomean"]
    assert ratios["that/t"]["all"]["value"] <= ratios["fastest/t"]["all"]["value"]
    # What another board has measured of the judged tasks is known, and its own records say how it differs.
    assert ratios["fleet/t"]["all"]["value"] > 1.05 > ratios["fleet_shuffled/t"]["all"]["value"]
    shares = shares_of(lines)["1"]
    assert shares["fastest"]["all"] == 1.0 and shares["t"]["b"] < shares["that"]["b"]


def test_a_task_counts_once_by_the_mean_over_draws() -> None:
    lines = [
        {"board": "b", "model": "net", "task": "one", "times": {"t": (2.0, 1.0), "that": (1.0, 1.0)}},
        {"board": "b", "model": "net", "task": "one", "times": {"t": (2.0, 1.0), "that": (2.0, 1.0)}},
    ]
    found = figures_of(lines)
    assert found["1"]["that/t"]["all"]["n"] == 1
    assert found["1"]["that/t"]["all"]["value"] == pytest.approx(2**0.5)
    assert found["10"]["that/t"]["all"]["value"] == 1.0


def test_a_kernel_on_several_boards_is_one_and_a_network_has_its_kernels() -> None:
    gains = {("one", "a"): 1.2, ("one", "b"): 1.3, ("two", "c"): 1.0, ("three", "d"): 0.9}
    lines = [
        {"board": board, "model": model, "task": task, "times": {"t": (gain * own, 1.0), "that": (1.0, 1.0)}}
        for (model, task), gain in gains.items()
        for board, own in (("x", 1.1), ("y", 1.1), ("z", 1.1 if task != "a" else 1.0))
    ]
    found = figures_of(lines)["1"]["that/t"]
    assert found["x"]["n"] == found["all"]["n"] == 4 and found["all"]["over_networks"]["n"] == 3
    alone = figures_of([one for one in lines if one["board"] == "x"])["1"]["that/t"]["all"]
    # Two more boards of nearly the same ratios make no interval narrower.
    width, before = (math.log(one["high"] / one["low"]) for one in (found["all"], alone))
    assert width > 0.9 * before
    networks = (math.sqrt(1.2 * 1.1 ** (2 / 3) * 1.3 * 1.1), 1.1, 0.9 * 1.1)
    assert found["all"]["over_networks"]["value"] == pytest.approx(math.prod(networks) ** (1 / 3))


def test_the_best_of_ten_is_among_the_first_ten() -> None:
    task = _task(1)
    backwards = [-float(place) for place in range(len(task.programs))]
    times = [slower for _, slower in task.example.programs]
    assert in_order([task], [backwards]) == [Chosen(times[-1], times[2])]


def test_programs_of_equal_estimates_are_not_in_the_order_of_their_times() -> None:
    tasks = [_task(number) for number in range(20)]
    found = in_order(tasks, [[0.0] * len(task.programs) for task in tasks])
    assert sum(one.first > 1.0 for one in found) > 12
    assert found == in_order(tasks, [[0.0] * len(task.programs) for task in tasks])
