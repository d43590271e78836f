"""What a recorder is told of the walks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from host.compile.explanation import path_to
from host.gensor import Gensor
from host.gensor.walk import Step, WalkOptions, construct
from host.model import DeviceProfile
from host.schedules import DesignSpace, space_for
from host.schedules.api import Decisions
from host.schedules.design import Fits
from tests.unit.schedules import functions as fn

BOARD = fn.board()
PROFILE = DeviceProfile("test", BOARD, BOARD.hardware, 1)
FUNCTIONS = {"dense": fn.dense(64, 192, 96), "depthwise": fn.depthwise(14, 96, 1)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_step_is_told_and_leads_to_the_program(name: str) -> None:
    space = space_for(fn.task(FUNCTIONS[name], name), BOARD.hardware, 1)
    (candidate,) = Gensor().propose(space, PROFILE, (), 1, seed=5)
    steps: list[Step] = []
    Gensor().retrace(space, PROFILE, 5, steps.append)
    assert Gensor().propose(space, PROFILE, (), 1, seed=5) == [candidate], "a recorder changes nothing"
    path = path_to(steps, dict(candidate.decisions))
    assert path[-1].state.decisions == dict(candidate.decisions)
    assert path[-1].cost_s == candidate.estimate_s
    assert path[0].walk >= 0
    for step in path:
        assert step.cost_s == space.estimate_s(step.state.decisions)
    for before, after in pairwise(path):
        changed = {n for n, v in before.state.values if after.state.decisions[n] != v}
        kind, decision = before.taken
        if before.walk == after.walk:
            assert changed == ({decision} if decision else set())
            benefits = {(k, d, v): b for k, d, v, b in before.benefits}
            if decision:
                benefit = benefits[kind, decision, after.state.decisions[decision]]
                assert benefit == pytest.approx(before.cost_s / after.cost_s)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_descents_go_where_one_has_been_only_for_a_recorder(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = space_for(fn.task(FUNCTIONS[name], name), BOARD.hardware, 1)
    looked: list[tuple[int, ...]] = []
    neighbours = DesignSpace.neighbours

    def counted(self: DesignSpace, values: Decisions, fits: Fits) -> Iterator[dict[str, int]]:
        looked.append(tuple(values.values()))
        return neighbours(self, values, fits)

    monkeypatch.setattr(DesignSpace, "neighbours", counted)
    found = Gensor().propose(space, PROFILE, (), 8, seed=5)
    assert len(looked) == len(set(looked))
    places, steps = set(looked), []
    looked.clear()
    Gensor().retrace(space, PROFILE, 5, steps.append)
    assert set(looked) == places and len(looked) > len(places)
    assert Gensor().propose(space, PROFILE, (), 8, seed=5) == found


def test_the_parts_make_the_estimate() -> None:
    space = space_for(fn.task(FUNCTIONS["dense"], "dense"), BOARD.hardware, 1)
    (candidate,) = Gensor().propose(space, PROFILE, (), 1, seed=5)
    parts = space.estimate_parts_s(dict(candidate.decisions))
    assert list(parts) == ["compute", "L2", "L3", "DRAM", "padding"]
    assert max(parts.values()) <= candidate.estimate_s <= sum(parts.values())


def test_a_program_that_no_walk_met_has_no_path() -> None:
    space = space_for(fn.task(FUNCTIONS["dense"], "dense"), BOARD.hardware, 1)
    steps: list[Step] = []
    Gensor().retrace(space, PROFILE, 5, steps.append)
    assert path_to(steps, {"vectors": -1}) == ()


def test_what_was_drawn_is_not_drawn_again_for_a_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    space = space_for(fn.task(FUNCTIONS["dense"], "dense"), BOARD.hardware, 1)
    again = space_for(fn.task(FUNCTIONS["dense"], "dense"), BOARD.hardware, 1)
    whole: list[Step] = []
    Gensor().retrace(again, PROFILE, 5, whole.append)
    drawn: list[int] = []
    sample = DesignSpace.sample

    def counted(self: DesignSpace, generator: random.Random) -> dict[str, int]:
        drawn.append(1)
        return sample(self, generator)

    monkeypatch.setattr(DesignSpace, "sample", counted)
    Gensor().propose(space, PROFILE, (), 1, seed=5)
    assert drawn
    drawn.clear()
    steps: list[Step] = []
    Gensor().retrace(space, PROFILE, 5, steps.append)
    assert not drawn and steps == whole
    Gensor().retrace(space, PROFILE, 6, steps.append)
    assert drawn, "another seed draws other programs"
    drawn.clear()
    construct(space, lambda values: 1.0, WalkOptions(), 1, 5)
    assert drawn, "another estimate has another best"
