"""Boards that fail, hang, are slow or odd, and come back: no program is lost, none is measured twice."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from host.errors import DeviceBusy, DeviceError, LeaseLost, MeasureError
from host.model import Measurement
from host.records import Record, RecordStore
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.runners.runner import Program
from host.tuning.runners.speeds import BoardSpeeds
from host.tuning.tasks import TuningTask
from tests.unit.tuning.runners.fake_boards import (
    FakeBoard,
    made_programs,
    numbers,
    pool,
    run,
)
from tests.unit.tuning.simulated import measured, profile, truth, tuning_tasks
from tests.unit.tuning.test_loop import options, programs, records
from tests.unit.tuning.test_loop import run as tuned


def test_all_boards_measure_and_every_program_once(tmp_path: Path) -> None:
    barrier = threading.Barrier(3, timeout=20)
    # Each waits for the others: so all three are at work at one time.
    boards = [FakeBoard(name, lambda board, library: barrier.wait() and None) for name in "abc"]
    outcomes = run(pool(boards, tmp_path), made_programs(tmp_path, 12))
    assert numbers(outcomes) == list(range(12))
    assert [len(one.programs) for one in boards] == [4, 4, 4]
    assert {one.board for one in outcomes} == {"a", "b", "c"}
    assert all(one.closed for one in boards)
    assert not list(tmp_path.glob("program*.so"))


def test_a_board_that_drops_out_loses_nothing_but_its_turn(tmp_path: Path) -> None:
    notes: list[str] = []
    lost: list[Path] = []

    def once(board: FakeBoard, library: Path) -> None:
        if not lost:
            lost.append(library)
            board.away = 3
            board.lose()

    boards = [FakeBoard("a", once), FakeBoard("b", lambda board, library: time.sleep(0.01))]
    outcomes = run(pool(boards, tmp_path, notes), made_programs(tmp_path, 30))
    assert numbers(outcomes) == list(range(30))
    assert not any(one.failure for one in outcomes)
    assert lost[0] in boards[1].programs, "its program was measured by the other"
    assert "a is back" in notes
    assert boards[0].programs, "and it came back"


def test_a_board_that_never_answers_is_done_without(tmp_path: Path) -> None:
    boards = [FakeBoard("a"), FakeBoard("b", away=1_000_000)]
    outcomes = run(pool(boards, tmp_path), made_programs(tmp_path, 5))
    assert [one.board for one in outcomes] == ["a"] * 5


def test_boards_that_do_not_come_back_are_named(tmp_path: Path) -> None:
    boards = [FakeBoard(name, away=1_000_000) for name in "ab"]
    policy = ReconnectPolicy(limit_s=0.0, first_pause_s=0.0, longest_pause_s=0.01)
    with pytest.raises(DeviceError, match=r"^none of a, b comes back \("):
        run(pool(boards, tmp_path, policy=policy), made_programs(tmp_path, 2))


def test_boards_that_are_all_taken_by_other_hosts_end_it_with_who_took_them(tmp_path: Path) -> None:
    def taken(board: FakeBoard, library: Path) -> None:
        raise LeaseLost(f"{board.name}: its lease is lost, ben@desk released it by force")

    boards = [FakeBoard(name, taken) for name in "ab"]
    with pytest.raises(LeaseLost, match=r"^a: its lease is lost, ben@desk released it by force$"):
        run(pool(boards, tmp_path), made_programs(tmp_path, 2))


def test_a_program_that_takes_two_boards_away_is_at_fault(tmp_path: Path) -> None:
    def behave(board: FakeBoard, library: Path) -> None:
        if library.name == "program1.so":
            board.lose()

    outcomes = run(pool([FakeBoard(name, behave) for name in "abc"], tmp_path), made_programs(tmp_path, 4))
    assert numbers(outcomes) == [0, 1, 2, 3]
    [fault] = [one for one in outcomes if one.failure]
    assert "the device went away 2 times" in fault.failure
    assert fault.program.candidate.value("rows") == 1


def test_a_board_that_fails_at_everything_makes_no_program_look_bad(tmp_path: Path) -> None:
    boards = [FakeBoard("a", lambda board, library: board.lose()), FakeBoard("b")]
    outcomes = run(pool(boards, tmp_path), made_programs(tmp_path, 10))
    assert [(one.board, one.failure) for one in outcomes] == [("b", "")] * 10


def test_a_board_that_another_host_has_for_a_while_joins_later(tmp_path: Path) -> None:
    left = [None] * 4

    def busy(board: FakeBoard, library: Path) -> None:
        if left:
            left.pop()
            raise DeviceBusy("a: the device is in use by ann@lab for 3 s")

    boards = [FakeBoard("a", busy), FakeBoard("b", lambda board, library: time.sleep(0.01))]
    outcomes = run(pool(boards, tmp_path), made_programs(tmp_path, 30))
    assert numbers(outcomes) == list(range(30))
    assert not left
    assert not any(one.failure for one in outcomes)
    assert boards[0].programs


def test_what_hangs_is_measured_by_another_and_what_it_says_later_does_not_count(tmp_path: Path) -> None:
    notes: list[str] = []
    hung: list[Path] = []

    def hang(board: FakeBoard, library: Path) -> None:
        if not hung:
            hung.append(library)
            # Cut off, it gives a number after all.
            assert board.aborted.wait(20)

    boards = [FakeBoard("a", hang), FakeBoard("b", lambda board, library: time.sleep(0.01))]
    policy = ReconnectPolicy(limit_s=5.0, first_pause_s=0.001, longest_pause_s=0.01, answer_limit_s=0.2)
    outcomes = run(pool(boards, tmp_path, notes, policy=policy), made_programs(tmp_path, 6))
    assert numbers(outcomes) == list(range(6))
    assert not any(one.failure for one in outcomes)
    assert [one.board for one in outcomes if one.program.built == hung[0]] == ["b"]
    assert [text for text in notes if text.startswith("a hangs: no answer for 0.2 s")]


def test_when_all_boards_stay_away_it_ends_with_what_to_do(tmp_path: Path) -> None:
    def gone(board: FakeBoard, library: Path) -> None:
        board.away = 1_000_000
        board.lose()

    policy = ReconnectPolicy(limit_s=0.1, first_pause_s=0.001, longest_pause_s=0.01)
    workers = pool([FakeBoard("a", gone), FakeBoard("b", gone)], tmp_path, policy=policy)
    with pytest.raises(DeviceError, match=r"none of a, b .*stored: run the same command again"):
        run(workers, made_programs(tmp_path, 5))


def test_when_time_is_up_what_has_begun_is_finished_and_nothing_else(tmp_path: Path) -> None:
    begun: list[Path] = []

    def behave(board: FakeBoard, library: Path) -> None:
        begun.append(library)

    def more() -> bool:
        return len(begun) < 4

    boards = [FakeBoard(name, behave) for name in "ab"]
    outcomes = run(pool(boards, tmp_path), made_programs(tmp_path, 20), more)
    assert 4 <= len(outcomes) == len(begun) <= 5, "both may have begun with the last"


def test_a_fault_of_ours_is_not_swallowed(tmp_path: Path) -> None:
    def behave(board: FakeBoard, library: Path) -> None:
        raise ZeroDivisionError("a mistake")

    with pytest.raises(ZeroDivisionError, match="a mistake"):
        run(pool([FakeBoard("a", behave), FakeBoard("b", behave)], tmp_path), made_programs(tmp_path, 3))


def test_times_are_those_of_the_fleet_and_an_odd_unit_measures_nothing(tmp_path: Path) -> None:
    notes: list[str] = []
    boards = [FakeBoard("a", slowness=1.0), FakeBoard("b", slowness=1.04), FakeBoard("odd", slowness=1.3)]
    outcomes = run(pool(boards, tmp_path, notes), made_programs(tmp_path, 40))
    assert numbers(outcomes) == list(range(40))
    assert not boards[2].programs
    assert [text for text in notes if text.startswith("odd is 27% slower than the others")]
    by_board = {one.board: one for one in outcomes}
    middle = 1.04**0.5
    for name, factor in (("a", 1 / middle), ("b", 1.04 / middle)):
        if name in by_board:
            assert by_board[name].factor == pytest.approx(factor)
            assert by_board[name].measurement is not None
            assert by_board[name].measurement.median_s == pytest.approx(middle)


def test_an_odd_unit_goes_on_where_it_is_the_only_one_left(tmp_path: Path) -> None:
    notes: list[str] = []

    def leave(board: FakeBoard, library: Path) -> None:
        if len(board.programs) == 3:
            board.away = 1_000_000
            board.lose()

    boards = [FakeBoard("a", leave), FakeBoard("odd", slowness=1.3)]
    outcomes = run(pool(boards, tmp_path, notes), made_programs(tmp_path, 10))
    assert numbers(outcomes) == list(range(10))
    assert [one.board for one in outcomes] == ["a"] * 3 + ["odd"] * 7
    assert {one.factor for one in outcomes} == {1.0}
    assert [text for text in notes if text.startswith("from now on times are those of odd")]


def test_a_unit_that_gets_slow_is_left_out_until_it_is_as_fast_again(tmp_path: Path) -> None:
    notes: list[str] = []
    boards = [FakeBoard("a"), FakeBoard("b"), FakeBoard("c")]

    def throttles(board: FakeBoard, library: Path) -> None:
        total = sum(len(one.programs) for one in boards)
        board.slowness = 1.5 if 20 <= total < 60 else 1.0
        time.sleep(0.002)

    boards[0].behave = throttles
    speeds = BoardSpeeds(tolerance=0.1, every=3)

    def later(board: FakeBoard, library: Path) -> None:
        if sum(len(one.programs) for one in boards) >= 60:
            boards[0].slowness = 1.0
        time.sleep(0.002)

    boards[1].behave = boards[2].behave = later
    outcomes = run(pool(boards, tmp_path, notes, speeds=speeds), made_programs(tmp_path, 120))
    assert numbers(outcomes) == list(range(120))
    said = [text for text in notes if text.startswith("a ")]
    assert any("50% slower" in text for text in said)
    assert any("measures again" in text for text in said)
    wrong = [one for one in outcomes if one.measurement and one.measurement.median_s > 1.2]
    assert len(wrong) <= 3, "at most those between two looks at it"


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_boards_do_no_program_is_lost_or_counted_twice(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    guard = threading.Lock()

    def chance() -> float:
        with guard:
            return draw.random()

    def whim(board: FakeBoard, library: Path) -> None:
        luck = chance()
        if luck < 0.1:
            board.away = int(4 * chance())
            board.lose()
        elif luck < 0.2:
            raise MeasureError("kernel dense: refuses its arguments")
        elif luck < 0.25:
            # Longer than anybody waits; then it answers, or is gone.
            board.aborted.wait(10)
            board.aborted.clear()
            if chance() < 0.5:
                board.lose()
        elif luck < 0.5:
            time.sleep(0.002)

    boards = [FakeBoard(name, whim, away=int(3 * chance())) for name in "abcd"]
    policy = ReconnectPolicy(limit_s=30.0, first_pause_s=0.0005, longest_pause_s=0.005, answer_limit_s=0.05)
    workers = pool(boards, tmp_path, policy=policy, speeds=BoardSpeeds(every=5))
    seen: Counter[int] = Counter()
    wanted = made_programs(tmp_path, 60)
    with workers:
        for start in range(0, 60, 15):
            outcomes = list(workers.run(wanted[start : start + 15], lambda: True))
            assert numbers(outcomes) == list(range(start, start + 15))
            seen.update(numbers(outcomes))
            assert all(bool(one.failure) != bool(one.measurement) for one in outcomes)
    assert seen == Counter(range(60))
    assert all(one.closed for one in boards)
    assert not [one for one in threading.enumerate() if one.name.startswith("board ")]


def test_the_loop_keeps_who_measured_and_no_program_twice(tmp_path: Path) -> None:

    class Board(FakeBoard):
        def measure(self, task: TuningTask, library: Path) -> Measurement:
            if library.name.startswith("reference"):
                return measured(self.slowness)
            self.behave(self, library)
            return measured(truth(task.space, built[library]) * self.slowness)

    built = {}

    class Runner:
        def build(self, task: TuningTask, one: object) -> Path:
            path = tmp_path / f"{len(built)}.so"
            path.touch()
            built[path] = one
            return path

        def run(self, some: list[Program], may_begin: Callable[[], bool]) -> object:
            return workers.run(some, may_begin)

    def sometimes(board: FakeBoard, library: Path) -> None:
        if library.name in ("3.so", "11.so") and not (tmp_path / f"{library.name}.lost").exists():
            (tmp_path / f"{library.name}.lost").touch()
            board.lose()
        time.sleep(0.002)

    workers = pool([Board("a", sometimes, 1.0), Board("b", sometimes, 1.06)], tmp_path)
    with workers:
        result = tuned(tmp_path, options(24, 8), runner=Runner(), tasks=tuning_tasks())  # type: ignore[arg-type]
    kept: list[Record] = records(tmp_path)
    assert result.trials == len(kept) == len(programs(kept)) == 24
    assert not any(one.failure for one in kept)
    assert {one.origin.device for one in kept} == {"a", "b"}
    for one in kept:
        # Whoever measured: corrected, the time is what the fleet's boards take on average.
        task = next(task for task in tuning_tasks() if task.key == one.candidate.workload_hash)
        middle = 1.06**0.5
        assert one.median_s == pytest.approx(truth(task.space, one.candidate) * middle)
        raw = truth(task.space, one.candidate) * (1.0 if one.origin.device == "a" else 1.06)
        assert one.median_s * one.origin.unit_factor == pytest.approx(raw, rel=1e-5)
    with RecordStore(tmp_path / "r.sqlite") as store:
        assert len(list(store)) == 24
    assert profile().device == "desk"
