"""`sdk.compiler`: the steps of the compiler one by one, to a measured record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sdk import compiler
from sdk.errors import ScheduleError
from tests.integration import small_models


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[compiler.Bench]:
    with compiler.Bench("local", threads=1, records=tmp_path / "records.sqlite") as bench:
        yield bench


def largest(bench: compiler.Bench, tmp_path: Path) -> compiler.DesignSpace:
    model = compiler.read_model(small_models.encoder(tmp_path / "encoder.onnx", hidden=16), {"seq": (8,)})
    found = compiler.tasks(model, bench.profile)
    return compiler.design_space(max(found, key=lambda task: task.flops), bench.profile)


def test_a_model_becomes_a_record_step_by_step(bench: compiler.Bench, tmp_path: Path) -> None:
    space = largest(bench, tmp_path)
    [candidate] = compiler.propose(space, bench.profile)
    record = bench.measure(space, candidate)
    assert record.median_s is not None and record.median_s > 0
    assert record.candidate == candidate
    again = bench.measure(space, {name: int(value) for name, value in candidate.decisions})  # type: ignore[arg-type]
    assert again.candidate.decisions == candidate.decisions
    assert again.candidate.proposer == "user"


def test_decisions_become_a_program_or_are_refused(bench: compiler.Bench, tmp_path: Path) -> None:
    space = largest(bench, tmp_path)
    [candidate] = compiler.propose(space, bench.profile)
    decisions = {name: int(value) for name, value in candidate.decisions}  # type: ignore[arg-type]
    assert "T.vectorized" in compiler.program(space, decisions).script()
    first = space.decisions[0].name
    with pytest.raises(ScheduleError, match=f"give the decisions .*see {first}"):
        compiler.program(space, {name: value for name, value in decisions.items() if name != first})
    with pytest.raises(ScheduleError, match="are not legal"):
        compiler.program(space, decisions | {first: 10**6})


def test_a_target_that_is_not_there_has_a_profile_too() -> None:
    profile = compiler.target_profile("raspberry_pi_5", threads=2)
    assert (profile.board.name, profile.threads) == ("raspberry_pi_5", 2)
