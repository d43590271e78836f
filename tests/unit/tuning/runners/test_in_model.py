"""Programs measured inside of the model: which variants are made of them, and what their times say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from host.errors import DeviceError, EngineError, MeasureError, SessionLost
from host.measure.variants import VariantMeasurement, VariantTimes
from host.model import Candidate, Energy, Measurement
from host.tuning.runners.connection import ReferenceModel
from host.tuning.runners.in_model import KernelsInModel, counted
from host.tuning.runners.runner import Outcome, Program
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import candidate, dense_space

TASKS = {name: TuningTask(dense_space(name), 1e-5) for name in ("a", "b", "c")}
STATE = Measurement((), Energy("unavailable", None, None, "not asked for"), {}, {}, 1)
# Programs by their number: the reference program of each task has the number 0.
REFERENCE = {task.key: candidate(task.key, 0, "gensor") for task in TASKS.values()}


class Linker:
    """Writes which programs a library has into it."""

    kernels = frozenset(TASKS)

    def link(self, others: Mapping[str, Any], output: Path) -> Path:
        output.write_text(json.dumps({name: built.number for name, built in others.items()}))
        return output

    def link_alone(self, name: str, kernel: Any, output: Path) -> Path:
        return self.link({name: kernel}, output)


@dataclass
class Board:
    """A board on which a program takes `seconds(kernel, number)` times `speed`."""

    seconds: Callable[[str, int], float]
    speed: float = 1.0
    slowest: float = 3.0
    name: str = "desk"
    asked: list[list[dict[str, int]]] = field(default_factory=list)
    joules: list[dict[str, int]] = field(default_factory=list)
    broken: bool = False

    def measure_energy(self, task: TuningTask, library: Path, program: Candidate) -> Measurement:
        alone = json.loads(library.read_text())
        assert alone == {task.name: program.value("rows")}
        self.joules.append(alone)
        if self.broken:
            raise SessionLost("desk: the executor crashed")
        energy = Energy("measured", 2.0 + alone[task.name], None, "test", mean_w=5.0)
        return replace(STATE, times_s=(9.0,), energy=energy)

    def measure_variants(self, model: ReferenceModel, libraries: Sequence[Path]) -> VariantMeasurement:
        variants = [json.loads(path.read_text()) for path in libraries]
        self.asked.append(variants)
        whole = [self._times(one) for one in variants]
        limit = self.slowest * sum(whole[0].values())
        return VariantMeasurement(
            tuple(
                VariantTimes(slow, {name: (time,) * (1 if slow else 10) for name, time in times.items()})
                for times in whole
                for slow in [sum(times.values()) > limit]
            ),
            STATE,
        )

    def _times(self, variant: Mapping[str, int]) -> dict[str, float]:
        return {name: self.speed * self.seconds(name, variant.get(name, 0)) for name in TASKS}


def method(folder: Path, recorded: Mapping[str, float] | None = None) -> KernelsInModel:
    library = folder / "reference.so"
    library.write_text("{}")
    model = ReferenceModel(folder, ())
    return KernelsInModel(Linker(), model, library, REFERENCE, recorded or {}, folder)  # type: ignore[arg-type]


def program(task: str, number: int) -> Program:
    one = TASKS[task]
    built: Any = SimpleNamespace(number=number)
    return Program(one, candidate(one.key, number, "gensor"), built)


def number_of(program: Program) -> object:
    return program.candidate.value("rows")


def seconds_of(outcomes: Sequence[Outcome]) -> dict[tuple[str, object], float]:
    return {
        (one.program.task.name, number_of(one.program)): one.measurement.median_s
        for one in outcomes
        if one.measurement is not None
    }


def test_a_variant_has_one_program_of_each_task_and_there_are_as_few_as_can_be(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0 + number)
    programs = [program("a", 1), program("a", 2), program("b", 1), program("c", 1), program("a", 0)]
    outcomes = method(tmp_path).measure(board, programs, 1.0)  # type: ignore[arg-type]
    assert board.asked == [[{}, {"a": 1, "b": 1, "c": 1}, {"a": 2}]]
    # The reference program is in the reference model.
    assert seconds_of(outcomes) == {
        ("a", 0): 1.0,
        ("a", 1): 2.0,
        ("b", 1): 2.0,
        ("c", 1): 2.0,
        ("a", 2): 3.0,
    }
    assert not list(tmp_path.glob("variant-*")), "libraries are not kept"


def heavy(task: str, number: int) -> Program:
    """A program of a task whose energy is measured."""
    one = program(task, number)
    return replace(one, task=replace(one.task, energy=True))


def test_heavy_kernels_have_joules_of_their_own_window_and_times_of_the_model(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0 + number)
    measuring = method(tmp_path)
    programs = [heavy("a", 1), program("b", 1), heavy("c", 2)]
    outcomes = measuring.measure(board, programs, 1.0)  # type: ignore[arg-type]
    found = {one.program.task.name: one.measurement for one in outcomes}
    assert {name: one.energy.gross_j for name, one in found.items()} == {"a": 3.0, "b": None, "c": 4.0}
    assert {name: one.median_s for name, one in found.items()} == {"a": 2.0, "b": 2.0, "c": 3.0}
    assert board.joules == [{"c": 2}, {"a": 1}], "the longest kernel comes first"
    assert not list(tmp_path.glob("alone-*")), "libraries are not kept"
    # A job of one variant: each of its heavy kernels has a window.
    jobs = measuring.jobs([heavy("a", 1), heavy("a", 2), heavy("a", 3)], 1)
    assert [len(job) for job in jobs] == [1, 1, 1]
    assert [len(job) for job in measuring.jobs([program("a", number) for number in (1, 2, 3)], 1)] == [3]


def test_a_kernel_that_fails_by_itself_keeps_its_time(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0 + number, broken=True)
    [outcome] = method(tmp_path).measure(board, [heavy("a", 1)], 1.0)  # type: ignore[arg-type]
    assert outcome.measurement is not None and outcome.measurement.median_s == 2.0
    assert outcome.measurement.energy.gross_j is None
    assert "the executor crashed" in outcome.measurement.energy.reason


def test_a_board_that_goes_away_in_a_window_keeps_the_times_of_its_job(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0 + number)
    dropped: list[str] = []
    asked: list[str] = []

    def lost(task: TuningTask, library: Path, program: Candidate) -> Measurement:
        asked.append(task.name)
        raise DeviceError("desk: the connection is lost")

    board.measure_energy = lost  # type: ignore[method-assign]
    board.drop = lambda: dropped.append("desk") or ""  # type: ignore[attr-defined]
    programs = [heavy("a", 1), program("b", 1), heavy("c", 2)]
    outcomes = method(tmp_path).measure(board, programs, 1.0)  # type: ignore[arg-type]
    assert seconds_of(outcomes) == {("a", 1): 2.0, ("b", 1): 2.0, ("c", 2): 3.0}
    assert all(one.measurement is not None and one.measurement.energy.gross_j is None for one in outcomes)
    assert dropped == ["desk"] and asked == ["c"], "the next job connects again; no window begins before"


def test_times_are_those_of_the_first_job_however_fast_the_board_is_later(tmp_path: Path) -> None:
    measuring = method(tmp_path)
    board = Board(lambda name, number: 1.0 + number)
    measuring.measure(board, [program("a", 1)], 1.0)  # type: ignore[arg-type]
    board.speed = 1.5
    [outcome] = measuring.measure(board, [program("a", 2)], 1.0)  # type: ignore[arg-type]
    assert (outcome.factor, outcome.measurement.median_s) == (1.5, 3.0)  # type: ignore[union-attr]


def test_times_are_those_of_the_records_if_there_are_any(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0 + number)
    [outcome] = method(tmp_path, {"a": 4.0}).measure(board, [program("a", 1)], 1.0)  # type: ignore[arg-type]
    assert outcome.measurement is not None
    assert outcome.measurement.median_s == 8.0, "twice the reference program, which took 4 s then"


def test_the_program_that_makes_a_variant_slow_is_measured_and_the_others_again(tmp_path: Path) -> None:
    board = Board(lambda name, number: 100.0 if (name, number) == ("b", 1) else 1.0 + 0.5 * number)
    measuring = method(tmp_path)
    programs = [program("a", 1), program("b", 1), program("c", 1)]
    outcomes = measuring.measure(board, programs, 1.0)  # type: ignore[arg-type]
    assert seconds_of(outcomes) == {("b", 1): 100.0}
    rest = [one for one in programs if one.task.name != "b"]
    assert seconds_of(measuring.measure(board, rest, 1.0)) == {("a", 1): 1.5, ("c", 1): 1.5}  # type: ignore[arg-type]


def test_a_slow_variant_without_a_slow_program_comes_to_an_end(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0 + 0.1 * number, slowest=1.05)
    measuring = method(tmp_path)
    left = [program("a", 1), program("b", 2), program("c", 3)]
    measured = []
    while left:
        outcomes = measuring.measure(board, left, 1.0)  # type: ignore[arg-type]
        measured += [one.program for one in outcomes]
        left = [one for one in left if one not in measured]
    assert len(measured) == 3


def test_a_kernel_that_the_model_does_not_run_has_no_time(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0)
    other = TuningTask(dense_space("view"), 1e-5)
    strange = Program(other, candidate(other.key, 1, "gensor"), SimpleNamespace(number=1))  # type: ignore[arg-type]
    [outcome] = method(tmp_path).measure(board, [strange], 1.0)  # type: ignore[arg-type]
    assert outcome.failure == "kernel view does not run in the model"


def test_libraries_go_when_the_board_is_lost(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0)

    def lost(model: ReferenceModel, libraries: Sequence[Path]) -> VariantMeasurement:
        raise DeviceError("the board is gone")

    board.measure_variants = lost  # type: ignore[method-assign]
    with pytest.raises(DeviceError):
        method(tmp_path).measure(board, [program("a", 1)], 1.0)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("variant-*"))


def test_jobs_share_the_variants_among_the_boards(tmp_path: Path) -> None:
    measuring = method(tmp_path)
    unbuilt = Program(TASKS["a"], candidate(TASKS["a"].key, 9, "gensor"), None, "does not compile")
    programs = [program(task, number) for number in range(1, 5) for task in ("a", "b")]

    def shape(boards: int) -> list[list[tuple[str, object]]]:
        jobs = measuring.jobs([*programs, unbuilt], boards)
        assert jobs[0] == (unbuilt,)
        return [[(one.task.name, number_of(one)) for one in job] for job in jobs[1:]]

    first = [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    second = [("a", 3), ("b", 3), ("a", 4), ("b", 4)]
    assert shape(1) == [first + second]
    assert shape(2) == [first, second]
    assert measuring.jobs([unbuilt], 2) == [(unbuilt,)]
    assert measuring.jobs([], 2) == []


def test_the_fastest_fifth_of_the_runs_counts() -> None:
    assert counted((5.0, 1.0, 4.0, 2.0, 3.0)) == (1.0,)
    assert counted([float(number) for number in range(10, 0, -1)]) == (1.0, 2.0)
    assert counted((7.0,)) == (7.0,)


@pytest.mark.parametrize("error", [MeasureError("no measure_variants"), SessionLost("the executor crashed")])
def test_no_program_is_blamed_where_the_model_itself_cannot_be_measured(
    tmp_path: Path, error: MeasureError | SessionLost
) -> None:
    board = Board(lambda name, number: 1.0)
    tried: list[int] = []

    def refused(model: ReferenceModel, libraries: Sequence[Path]) -> VariantMeasurement:
        tried.append(len(libraries))
        raise error

    board.measure_variants = refused  # type: ignore[method-assign]
    measuring = method(tmp_path)
    with pytest.raises(type(error)):
        measuring.measure(board, [program("a", 1), program("b", 1)], 1.0)  # type: ignore[arg-type]
    assert tried == [2], "which of the two is at fault shows when each is alone"
    with pytest.raises(EngineError, match="desk cannot measure kernels inside of the model"):
        measuring.measure(board, [program("a", 1)], 1.0)  # type: ignore[arg-type]
    assert tried == [2, 2, 1]


def test_a_program_that_fails_beside_a_sound_model_is_to_blame(tmp_path: Path) -> None:
    board = Board(lambda name, number: 1.0)
    sound = board.measure_variants

    def crashed(model: ReferenceModel, libraries: Sequence[Path]) -> VariantMeasurement:
        if len(libraries) > 1:
            raise SessionLost("the executor crashed")
        return sound(model, libraries)

    board.measure_variants = crashed  # type: ignore[method-assign]
    with pytest.raises(SessionLost):
        method(tmp_path).measure(board, [program("a", 1)], 1.0)  # type: ignore[arg-type]
