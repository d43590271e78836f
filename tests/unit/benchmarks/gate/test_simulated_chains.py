"""Chains on simulated boards: their times are those of their parts, and what is judged has no noise."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest

from benchmarks.learning.simulated import (
    NetworkTasks,
    SimulatedBoard,
    drawn,
    ends_of,
    judged_board,
    ordered_by_board,
    orders_of,
    result_of,
)
from benchmarks.modelled_boards.draws import DRAWN, exchanged_by_chance, random_programs
from host.learned_estimate.estimate import LearnedEstimate
from host.schedules import DesignSpace
from host.tlm.model.network import new_model, save_model
from host.tlm.proposer import Tlm
from research.figures.finetuning import truth_of
from tests.unit.schedules.cpu.test_chain import chain_space
from tests.unit.tlm.model.test_decoding import SIZE, VOCABULARY
from tests.unit.tuning.simulated import dense_space

BOARD = SimulatedBoard("x86_64-v3", 3)


@cache
def _chain() -> DesignSpace:
    return chain_space("two parts with stride 2")[0]


def test_the_time_of_a_chain_is_that_of_its_parts_times_the_bands() -> None:
    space, truth = _chain(), truth_of(3)
    [values] = drawn(space, 1, "one")
    own = [
        {decision.name: values[f"{name}_{decision.name}"] for decision in part.decisions}
        for name, part in zip(("first", "second"), space.parts, strict=True)
    ]
    parts = [truth(part, some) for part, some in zip(space.parts, own, strict=True)]
    assert BOARD.seconds(space, values) == pytest.approx(space.workload.bands * sum(parts))
    other = dense_space("other")
    [values] = drawn(other, 1, "one")
    assert BOARD.seconds(other, values) == truth(other, values)
    noise = math.log(BOARD.measured(other, values) / truth(other, values))
    assert 0.0 < abs(noise) < 0.2 and BOARD.measured(other, values) == BOARD.measured(other, values)


def test_other_tasks_of_the_board_teach_the_order_of_chains() -> None:
    space = _chain()
    taught = LearnedEstimate(BOARD.taught([dense_space(f"task{number}") for number in range(6)]))
    orders = orders_of(space, BOARD, {"parts": taught, "none": LearnedEstimate(())})
    assert orders["none"] == pytest.approx(orders["t"])
    assert orders["parts"] > orders["t"]
    figures = ordered_by_board([{"board": "a", "orders": orders}, {"board": "b", "orders": orders}])
    assert figures["all"]["parts"]["tasks"] == 2 and figures["a"]["t"]["mean"] == round(orders["t"], 3)


def test_an_arm_ends_with_what_it_measures_as_the_fastest() -> None:
    space = _chain()
    programs = drawn(space, 5, "arm")
    seconds = [BOARD.seconds(space, values) for values in programs]
    arms = {"gensor_t": programs[:1], "other": programs[1:]}
    assert ends_of(space, BOARD, arms, 0) == {"gensor_t": seconds[0], "other": seconds[1]}
    best = min(programs, key=lambda values: BOARD.measured(space, values))
    assert ends_of(space, BOARD, arms, 10)["other"] == BOARD.seconds(space, best)


def test_parts_of_random_programs_are_exchanged_as_those_of_the_language_model_are() -> None:
    space = _chain()
    random = random_programs(space, 0)
    found = exchanged_by_chance(space, DesignSpace.estimate_s, 0)
    assert found[:24] == random[:24] and len(found) <= DRAWN
    assert all(map(space.legal, found))
    best = min(found, key=space.estimate_s)
    assert space.estimate_s(best) < min(map(space.estimate_s, random))
    # Each of its parts is that of a random program.
    for name in ("first", "second"):
        own = {key: value for key, value in best.items() if key.startswith(name)}
        assert any(own.items() <= one.items() for one in random)


def test_chains_are_judged_by_what_other_networks_teach(tmp_path: Path) -> None:
    save_model(new_model(VOCABULARY, SIZE, 0), tmp_path, VOCABULARY, SIZE, "", {})
    networks = [
        NetworkTasks("judged", (_chain(),), (dense_space("own"),)),
        NetworkTasks("other", (), tuple(dense_space(f"task{number}") for number in range(2))),
    ]
    rows = judged_board("x86_64-v3", 3, networks, Tlm(tmp_path), Tlm(tmp_path, mixed=False))
    [order] = rows
    assert order["model"] == "judged" and set(order["orders"]) == {"t", "parts", "chains", "parts_and_chains"}
    # No other chain teaches here, so that T is what orders.
    assert order["orders"]["chains"] == pytest.approx(order["orders"]["t"])
    arms = {"tlm32_that", "unmixed32_that", "exchanged_random32_that", "gensor_t"}
    assert arms <= set(order["seconds"]["0"])
    figures = result_of([order, {**order, "board": "another"}])
    ratio = figures["ratios"]["10"]["tlm32_that/random32_that"]
    assert set(ratio) == {order["board"], "another", "all"}
    ends = order["seconds"]["10"]
    assert ratio["all"]["geomean"] == pytest.approx(ends["random32_that"] / ends["tlm32_that"])
    assert figures["tasks_judged"][0] == order
