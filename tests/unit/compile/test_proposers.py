"""A user's proposer: what it returns is checked, and what it raises is one line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from host.compile.tuning.proposers import method_proposers, user_proposer
from host.errors import ScheduleError, UserError
from host.gensor import Gensor
from host.model import DeviceProfile
from host.options import CompileOptions
from host.schedules import DesignSpace, space_for
from tests.unit.schedules import functions

BOARD = functions.board("avx2")
PROFILE = DeviceProfile("test", BOARD, BOARD.hardware, 1)


def space(rows: int = 64) -> DesignSpace:
    return space_for(functions.task(functions.dense(rows, 32, 24, 8)), PROFILE.hardware)


class Mine:
    name = "mine"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def propose(self, *arguments: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def proposed(answer: Any, k: int = 2) -> list[Any]:
    proposer = user_proposer(Mine(answer))
    assert proposer is not None
    return proposer.propose(space(), PROFILE, (), k, 0)


def test_programs_of_the_space_pass_as_many_as_were_asked_for() -> None:
    made = Gensor().propose(space(), PROFILE, (), 3, 0)
    assert proposed(tuple(made)) == made[:2]


def test_what_it_raises_is_one_line_that_names_it() -> None:
    with pytest.raises(ScheduleError, match="the proposer mine failed on task: KeyError: 'x y'"):
        proposed(KeyError("x\ny".replace("\n", " ")))


@pytest.mark.parametrize("answer", [[None], ["rows=4"], [{"rows": 4}]])
def test_what_is_no_candidate_is_refused(answer: Any) -> None:
    with pytest.raises(ScheduleError, match="returned something that is not a program of task"):
        proposed(answer)


def test_a_program_of_another_task_or_an_illegal_one_is_refused() -> None:
    with pytest.raises(ScheduleError, match="not a program of task"):
        proposed(Gensor().propose(space(63), PROFILE, (), 1, 0))
    here = space()
    values = {one.name: one.choices[-1] for one in here.decisions}
    assert not here.legal(values)
    with pytest.raises(ScheduleError, match="not a program of task"):
        proposed([here.candidate(values, "mine")])


def test_nothing_asked_for_is_none() -> None:
    assert user_proposer("") is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("absent", "--proposer absent: no package adds it; installed are: "),
        (object(), "a object is no proposer"),
        (type("P", (), {"name": "gensor", "propose": print})(), "cannot be called 'gensor'"),
        (type("P", (), {"name": "a b", "propose": print})(), "cannot be called 'a b'"),
        # Its tunings would have the names of those for another objective, or inside of a model.
        (type("P", (), {"name": "energy", "propose": print})(), "cannot be called 'energy'"),
        (type("P", (), {"name": "model", "propose": print})(), "cannot be called 'model'"),
    ],
)
def test_what_is_no_proposer_is_refused(asked: object, words: str) -> None:
    with pytest.raises(UserError) as caught:
        user_proposer(asked)
    assert words in str(caught.value)


def test_one_proposer_alone_is_of_the_product_or_of_a_package() -> None:
    assert [one.name for one in method_proposers("gensor")] == ["gensor"]
    assert method_proposers("auto") == ()
    with pytest.raises(UserError, match="--method absent: no package adds it; installed are: "):
        method_proposers("absent")


def test_the_method_random_draws_uniformly_and_the_seed_decides() -> None:
    [drawn] = method_proposers("random")
    first = drawn.propose(space(), PROFILE, (), 8, 0)
    assert first == drawn.propose(space(), PROFILE, (), 8, 0)
    assert {one.decisions for one in first} != {
        one.decisions for one in drawn.propose(space(), PROFILE, (), 8, 1)
    }
    generator = random.Random(f"{space().task.workload_hash}/0")
    assert dict(first[0].decisions) == space().sample(generator)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"method": "random"}, "--method random measures kernels: give --trials N or --budget 3m"),
        ({"method": "random", "trials": 2, "proposer": "mine"}, "--method names who proposes alone"),
    ],
)
def test_a_method_needs_measurements_and_stands_alone(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        CompileOptions(Path("net.onnx"), **asked).check()
