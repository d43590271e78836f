"""Jobs that are prepared while a board measures another, and hosts that end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from host.execution import HostLost
from host.tuning.runners.connection import BoardConnection
from host.tuning.runners.method import KernelsAlone
from host.tuning.runners.runner import Outcome, Program
from tests.unit.tuning.runners.fake_boards import (
    FakeBoard,
    made_programs,
    pool,
    run,
)


class Preparing(KernelsAlone):
    """Takes note of what is prepared, and of what is measured with what was prepared."""

    def __init__(self) -> None:
        self.prepared_for: list[Path] = []
        self.measured_with: dict[Path, Path | None] = {}

    def prepared(self, programs: Sequence[Program]) -> Sequence[Path]:
        [library] = [one.built for one in programs]
        self.prepared_for.append(library)
        made = library.with_suffix(".made")
        made.write_bytes(b"made")
        return [made]

    def measure(
        self,
        connection: BoardConnection,
        programs: Sequence[Program],
        factor: float,
        prepared: Sequence[Path] | None = None,
    ) -> list[Outcome]:
        self.measured_with[programs[0].built] = prepared[0] if prepared else None
        return super().measure(connection, programs, factor)


def test_the_next_job_of_a_board_is_prepared_while_it_measures(tmp_path: Path) -> None:
    method, during = Preparing(), threading.Event()

    def behave(board: FakeBoard, library: Path) -> None:
        if library.name == "program0.so":
            # The board is busy, and its next job is prepared meanwhile.
            until = time.monotonic() + 20.0
            while not method.prepared_for and time.monotonic() < until:
                time.sleep(0.001)
            during.set()

    wanted = made_programs(tmp_path, 4)
    outcomes = run(pool([FakeBoard("desk", behave)], tmp_path, method=method, ahead=True), wanted)
    assert during.is_set()
    assert [one.program for one in outcomes] == wanted
    with_them = {path.name: made and made.name for path, made in method.measured_with.items()}
    # The last one stays in the queue, for a board that has nothing.
    assert with_them == {
        "program0.so": None,
        "program1.so": "program1.made",
        "program2.so": "program2.made",
        "program3.so": "program3.made",
    }


def test_a_connection_knows_the_next_program_and_forgets_one_that_is_given_back(tmp_path: Path) -> None:
    lost = []

    def behave(board: FakeBoard, library: Path) -> None:
        if not lost:
            lost.append(list(board.named))
            board.lose()

    board = FakeBoard("desk", behave)
    wanted = made_programs(tmp_path, 5)
    outcomes = run(pool([board], tmp_path, ahead=True), wanted)
    assert all(one.measurement is not None for one in outcomes)
    # It was named while the one before it was measured, and again when that came back after the loss.
    assert lost == [[wanted[1].built]] and board.withdrawn == 1
    measured = [path for path in board.times if not path.name.startswith("reference")]
    assert [path.name for path in board.named[1:]] == [path.name for path in measured[1:]]


def test_a_board_that_is_lost_gives_both_of_its_jobs_back(tmp_path: Path) -> None:
    lost = []
    gone = threading.Event()

    def behave(board: FakeBoard, library: Path) -> None:
        if board.name == "right":
            # Else it may measure everything before the other board has a job.
            assert gone.wait(20.0)
        elif not lost:
            lost.append(library)
            gone.set()
            board.lose()

    boards = [FakeBoard("left", behave), FakeBoard("right", behave)]
    method = Preparing()
    wanted = made_programs(tmp_path, 12)
    outcomes = run(pool(boards, tmp_path, method=method, ahead=True), wanted)
    assert lost
    assert Counter(id(one.program) for one in outcomes) == {id(one): 1 for one in wanted}
    assert all(one.measurement is not None for one in outcomes)
    measured_programs = Counter(path for board in boards for path in board.programs)
    assert set(measured_programs.values()) == {1}


def test_boards_begin_with_what_is_ready_while_one_of_them_still_measures(tmp_path: Path) -> None:
    first, second = made_programs(tmp_path / "1", 2), made_programs(tmp_path / "2", 2)
    begun = threading.Event()

    def behave(board: FakeBoard, library: Path) -> None:
        if library.parent.name == "2":
            begun.set()
        elif library == first[0].built:
            # It ends when a program of the following batch has begun.
            assert begun.wait(20.0)

    left = [second]
    boards = [FakeBoard("left", behave), FakeBoard("right", behave)]
    with pool(boards, tmp_path) as workers:
        outcomes = list(workers.run(first, lambda: True, lambda: left.pop() if left else ()))
    assert {id(one.program) for one in outcomes} == {id(one) for one in [*first, *second]}
    assert all(one.measurement is not None for one in outcomes)


def test_no_program_is_blamed_for_a_host_that_ends(tmp_path: Path) -> None:
    left = [3]

    def behave(board: FakeBoard, library: Path) -> None:
        if left[0]:
            left[0] -= 1
            board.connected = False
            raise HostLost("desk: a host of the cluster is gone")

    [outcome] = run(pool([FakeBoard("desk", behave)], tmp_path), made_programs(tmp_path, 1))
    assert outcome.measurement is not None, "it was tried until a host stayed"
