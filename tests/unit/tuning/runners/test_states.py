"""Faults in every state of a board: no job is lost, and none is measured oftener than docs/tuning.md allows.

The workers have no threads here: a test does their steps one by one.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.errors import DeviceBusy, DeviceError, LeaseLost, MeasureError, SessionLost
from host.model import Measurement
from host.tuning.runners.connection import BoardConnection
from host.tuning.runners.group import BoardGroup
from host.tuning.runners.job import MAX_LOSSES
from host.tuning.runners.method import KernelsAlone
from host.tuning.runners.reconnect import ReconnectPolicy
from host.tuning.runners.runner import Outcome, Program
from host.tuning.runners.speeds import BoardSpeeds
from host.tuning.runners.worker import BoardState, Worker
from host.tuning.tasks import TuningTask
from tests.unit.tuning.simulated import candidate, dense_space, measured

TASK = TuningTask(dense_space(), 1e-5)
REFERENCE = Path("reference.so")
PATIENT = ReconnectPolicy(limit_s=1e9, first_pause_s=0.0, longest_pause_s=0.0, answer_limit_s=60.0)
TAKEN = LeaseLost("a: its lease is lost, ben@desk released it by force")
GONE, BUSY, REFUSED = DeviceError("it went away"), DeviceBusy("ann@lab has it"), MeasureError("no arguments")


@pytest.fixture(autouse=True, scope="module")
def no_waiting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("host.tuning.runners.worker.POLL_S", 0.0)
        yield


class ScriptedBoard:
    """A board whose calls raise what a script says, and succeed when it is at its end.

    Attributes:
        connects, references, programs: errors by kind of call, in order; None for a success.
        begun: libraries of programs whose measurement began.
        ended: those of them that it measured to the end.
    """

    def __init__(
        self,
        name: str,
        connects: Sequence[Exception | None] = (),
        references: Sequence[Exception | None] = (),
        programs: Sequence[Exception | None] = (),
    ) -> None:
        self.name = name
        self.connects, self.references, self.programs = map(deque, (connects, references, programs))
        self.connected = False
        self.begun: list[Path] = []
        self.ended: list[Path] = []

    def _next(self, script: deque[Exception | None]) -> None:
        error = script.popleft() if script else None
        if error is not None:
            self.connected = self.connected and not isinstance(error, DeviceError)
            raise error

    def connect(self) -> None:
        self._next(self.connects)
        self.connected = True

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        assert self.connected, "nobody measures on a board that is not there"
        if library == REFERENCE:
            self._next(self.references)
        else:
            self.begun.append(library)
            self._next(self.programs)
            self.ended.append(library)
        return measured(1.0)

    def drop(self) -> str:
        self.connected = False
        return ""

    def abort(self) -> None:
        raise AssertionError("nothing hangs")

    def close(self) -> None:
        self.connected = False


def group_of(
    boards: Sequence[ScriptedBoard],
    policy: ReconnectPolicy = PATIENT,
    note: Callable[[str], None] = lambda text: None,
) -> BoardGroup:
    references = [(TASK, REFERENCE)] if len(boards) > 1 else []
    group = BoardGroup(note, policy, references, BoardSpeeds(every=3), KernelsAlone())
    group.workers = tuple(Worker(board, group) for board in boards)
    return group


def made_programs(count: int) -> list[Program]:
    return [
        Program(TASK, candidate(TASK.key, number, "gensor"), Path(f"{number}.so")) for number in range(count)
    ]


def finish_all(group: BoardGroup, order: Sequence[int] = ()) -> list[Outcome]:
    """The outcomes after steps of the workers in this order, and then in turn."""
    outcomes: list[Outcome] = []
    turns = deque(order)
    for number in range(2000):
        with group.jobs.changed:
            while (outcome := group.jobs.pop_outcome()) is not None:
                outcomes.append(outcome)
            if group.jobs.empty:
                return outcomes
        worker = group.workers[(turns.popleft() if turns else number) % len(group.workers)]
        worker.step()
    raise AssertionError("the jobs come to no end")


def libraries(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted(one.program.built.name for one in outcomes if isinstance(one.program.built, Path))


@pytest.mark.parametrize("loss", [GONE, BUSY])
@pytest.mark.parametrize("state", [BoardState.JOINING, BoardState.TIMING, BoardState.MEASURING])
def test_a_board_that_leaves_in_any_state_is_away_comes_back_and_loses_nothing(
    state: BoardState, loss: DeviceError
) -> None:
    leaving = ScriptedBoard(
        "a",
        # While it is away it is gone at two attempts more.
        connects=[loss if state is BoardState.JOINING else None, GONE, GONE],
        references=[loss if state is BoardState.TIMING else None],
        programs=[loss if state is BoardState.MEASURING else None],
    )
    group = group_of([leaving, ScriptedBoard("b")])
    first, other = group.workers
    group.jobs.put([[one] for one in made_programs(6)], lambda: True)
    while other.state is not BoardState.READY:
        other.step()
    while first.state is not BoardState.AWAY:
        first.step()
    assert first.known and first.reason is loss
    for _ in range(2):
        first.step()
        assert first.away and first.reason is GONE
    first.step()
    assert first.state is BoardState.TIMING, "it is timed anew before it takes a job"
    first.step()
    assert first.state is BoardState.READY
    outcomes = finish_all(group)
    assert libraries(outcomes) == [f"{number}.so" for number in range(6)]
    assert not any(one.failure for one in outcomes)
    measured_to_the_end = Counter(path for worker in group.workers for path in worker.connection.ended)
    assert set(measured_to_the_end.values()) == {1}


def test_what_a_board_went_away_from_is_next_and_for_another_board() -> None:
    boards = [ScriptedBoard("a", programs=[GONE]), ScriptedBoard("b")]
    group = group_of(boards)
    group.jobs.put([[one] for one in made_programs(3)], lambda: True)
    outcomes = finish_all(group, [0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1])
    assert boards[0].begun[0] == Path("0.so") and Path("0.so") not in boards[0].ended
    assert boards[1].ended[0] == Path("0.so")
    assert libraries(outcomes) == ["0.so", "1.so", "2.so"]


def test_a_program_that_is_refused_costs_the_board_nothing() -> None:
    group = group_of([ScriptedBoard("a", programs=[REFUSED])])
    group.jobs.put([[one] for one in made_programs(2)], lambda: True)
    refused, other = finish_all(group)
    assert (refused.failure, refused.measurement) == ("no arguments", None)
    assert other.measurement is not None
    assert group.workers[0].state is BoardState.READY


def test_one_board_takes_a_program_again_and_leaves_it_after_two_losses() -> None:
    board = ScriptedBoard("a", programs=[GONE, BUSY, GONE])
    group = group_of([board])
    board.programs.appendleft(None)
    group.jobs.put([[one] for one in made_programs(3)], lambda: True)
    outcomes = finish_all(group)
    assert [path.name for path in board.begun] == ["0.so", "1.so", "1.so", "1.so", "2.so"]
    assert [bool(one.failure) for one in outcomes] == [False, True, False]
    assert "went away 2 times" in outcomes[1].failure, "that another host had the device is no fault of it"


def test_a_fault_is_known_though_the_board_stays_away() -> None:
    board = ScriptedBoard("a", connects=[None, None] + [GONE] * 9, programs=[GONE, GONE])
    group = group_of([board], ReconnectPolicy(limit_s=0.0, first_pause_s=0.0))
    group.jobs.put([[one] for one in made_programs(2)], lambda: True)
    worker = group.workers[0]
    while len(board.begun) < MAX_LOSSES:
        worker.step()
    fault = group.jobs.pop_outcome()
    assert fault is not None and "went away 2 times" in fault.failure
    assert group.all_lost(), "it was tried again, and nothing was measured since it first went away"


def test_the_only_board_that_another_host_has_from_the_start_ends_it() -> None:
    group = group_of([ScriptedBoard("a", connects=[BUSY])])
    group.jobs.put([[one] for one in made_programs(1)], lambda: True)
    with pytest.raises(DeviceBusy, match="ann@lab"):
        group.workers[0].step()


def test_the_only_board_that_another_host_took_ends_it_at_the_first_attempt() -> None:
    board = ScriptedBoard("a", connects=[None, TAKEN], programs=[None, GONE])
    group = group_of([board])
    group.jobs.put([[one] for one in made_programs(3)], lambda: True)
    with pytest.raises(LeaseLost, match="ben@desk released it"):
        finish_all(group)
    assert not board.connects, "it was tried once"


def test_a_board_that_another_host_took_is_left_to_it_and_the_others_go_on() -> None:
    taken, other = ScriptedBoard("a", connects=[None, TAKEN, None], programs=[GONE]), ScriptedBoard("b")
    group = group_of([taken, other])
    group.jobs.put([[one] for one in made_programs(4)], lambda: True)
    outcomes = finish_all(group)
    assert libraries(outcomes) == [f"{number}.so" for number in range(4)]
    assert {path.name for path in other.ended} >= set(libraries(outcomes))
    assert len(taken.connects) == 1 and group.workers[0].taken
    assert not group.all_lost(), "the other is there"


@pytest.mark.parametrize("joined", [False, True])
def test_nobody_is_told_that_a_board_is_tried_again_which_another_host_took(joined: bool) -> None:
    """It was leased before, and is lost before the first program or later."""
    notes: list[str] = []
    taken = ScriptedBoard("a", connects=[None, TAKEN] if joined else [TAKEN], programs=[GONE])
    group = group_of([taken, ScriptedBoard("b")], note=notes.append)
    group.jobs.put([[one] for one in made_programs(4)], lambda: True)
    finish_all(group)
    assert [text for text in notes if "ben@desk" in text] == [
        f"{TAKEN}; the other devices measure what is left"
    ]
    assert group.workers[0].taken and not taken.connects


class LateBoard(ScriptedBoard):
    """Answers its first program only when it is cut off, and answers all the same."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.cut = threading.Event()

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        if library != REFERENCE and not self.cut.is_set():
            assert self.cut.wait(60)
        return super().measure(task, library)

    def abort(self) -> None:
        self.cut.set()


@pytest.mark.parametrize("boards", [1, 2])
def test_an_answer_that_comes_too_late_does_not_count(boards: int) -> None:
    late = LateBoard("late")
    others = [ScriptedBoard("other")] * (boards - 1)
    policy = ReconnectPolicy(limit_s=1e9, first_pause_s=0.0, longest_pause_s=0.0, answer_limit_s=0.2)
    group = group_of([late, *others], policy)
    group.jobs.put([[one] for one in made_programs(1)], lambda: True)
    worker = group.workers[0]
    while not late.ended:
        for one in group.workers[1:]:
            while one.state is not BoardState.READY:
                one.step()
        worker.step()
    assert worker.away and late.ended == [Path("0.so")], "it was measured"
    assert group.jobs.pop_outcome() is None, "and nobody knows"
    [outcome] = finish_all(group, [len(group.workers) - 1])
    assert outcome.board == ("other" if others else "late")


def test_a_job_that_fails_is_halved_until_the_program_at_fault_is_found() -> None:
    board, tried = ScriptedBoard("board"), []

    class Together(KernelsAlone):
        def measure(
            self,
            connection: BoardConnection,
            programs: Sequence[Program],
            factor: float,
            prepared: Sequence[Path] | None = None,
        ) -> list[Outcome]:
            tried.append(names := [Path(str(one.built)).stem for one in programs])
            if "5" in names:
                raise SessionLost("the executor crashed")
            return [Outcome(one, measured(1.0), "", connection.name) for one in programs]

    group = group_of([board])
    group.method = Together()
    group.jobs.put([made_programs(8)], lambda: True)
    outcomes = finish_all(group)
    assert libraries(outcomes) == sorted(f"{number}.so" for number in range(8))
    assert [one.program.built for one in outcomes if one.failure] == [Path("5.so")]
    assert tried == [list("01234567"), list("0123"), list("4567"), list("45"), ["4"], ["5"], list("67")]


def test_programs_without_an_outcome_are_measured_again_together() -> None:
    board, tried = ScriptedBoard("board"), []

    class Slow(KernelsAlone):
        def measure(
            self,
            connection: BoardConnection,
            programs: Sequence[Program],
            factor: float,
            prepared: Sequence[Path] | None = None,
        ) -> list[Outcome]:
            tried.append([Path(str(one.built)).stem for one in programs])
            wanted = programs[:1] if len(tried) == 1 else programs
            return [Outcome(one, measured(1.0), "", connection.name) for one in wanted]

    group = group_of([board])
    group.method = Slow()
    group.jobs.put([made_programs(4)], lambda: True)
    assert len(finish_all(group)) == 4
    assert tried == [list("0123"), list("123")]


def test_a_board_that_leaves_twice_takes_no_program_along_that_is_not_at_fault() -> None:
    boards = [ScriptedBoard("board")]

    class Leaving(KernelsAlone):
        def measure(
            self,
            connection: BoardConnection,
            programs: Sequence[Program],
            factor: float,
            prepared: Sequence[Path] | None = None,
        ) -> list[Outcome]:
            if any(one.built == Path("1.so") for one in programs):
                raise DeviceError("it went away")
            return [Outcome(one, measured(1.0), "", connection.name) for one in programs]

    group = group_of(boards)
    group.method = Leaving()
    group.jobs.put([made_programs(3)], lambda: True)
    outcomes = finish_all(group)
    assert libraries(outcomes) == ["0.so", "1.so", "2.so"]
    assert [one.program.built for one in outcomes if one.failure] == [Path("1.so")]


errors = st.sampled_from([None, None, None, GONE, BUSY, REFUSED])
losses = st.sampled_from([None, GONE, BUSY])
scripts = st.tuples(st.lists(losses, max_size=6), st.lists(errors, max_size=4), st.lists(errors, max_size=12))


@settings(deadline=None, max_examples=200)
@given(st.lists(scripts, min_size=2, max_size=4), st.lists(st.integers(0, 3), max_size=60), st.integers(1, 9))
def test_whatever_the_boards_do_each_program_has_one_outcome(
    behaviours: list[tuple[list[DeviceError | None], ...]], order: list[int], count: int
) -> None:
    boards = [ScriptedBoard(f"board{number}", *script) for number, script in enumerate(behaviours)]
    group = group_of(boards)
    group.jobs.put([[one] for one in made_programs(count)], lambda: True)
    outcomes = finish_all(group, order)
    assert libraries(outcomes) == sorted(f"{number}.so" for number in range(count))
    begun = Counter(path.name for board in boards for path in board.begun)
    ended = Counter(path.name for board in boards for path in board.ended)
    for outcome in outcomes:
        assert isinstance(outcome.program.built, Path)
        name = outcome.program.built.name
        assert bool(outcome.failure) != bool(outcome.measurement)
        assert ended[name] == (0 if outcome.failure else 1), "nothing is measured twice"
        # Begun again only after a loss: one that counts, and any number where another host had the device.
        busy = sum(error is BUSY for script in behaviours for error in script[2])
        assert 1 <= begun[name] <= MAX_LOSSES + busy
