"""Boards of hosts that share records in PostgreSQL: leased while a command has them, on simulated boards."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from host.commands.tune import tune_model
from host.deploy import DeployOptions
from host.errors import LeaseLost
from host.leases import BoardStatus, LeaseTable, Request
from host.progress import Silence
from host.records import RecordStore
from host.transport import connect
from sdk.cli.main import main
from tests.integration.fleet.conftest import LocalFleet
from tests.integration.fleet.simulated_boards import slow_board
from tests.integration.test_tuning import perceptron, references, trials_of
from tests.servers.postgres import Server


class Watcher(Silence):
    """Looks at the leases when some programs are measured, and does something then.

    Attributes:
        seen: the boards then.
        notes: what was told.
    """

    def __init__(self, records: str, at: int, act: threading.Event | None = None) -> None:
        self.seen: tuple[BoardStatus, ...] = ()
        self.notes: list[str] = []
        self._records = records
        self._at = at
        self._act = act
        self._stage = ""

    def stage(self, name: str) -> None:
        self._stage = name

    def advance(self, done: int, total: int) -> None:
        if self._stage == "tune" and done >= self._at and not self.seen:
            with LeaseTable(self._records) as table:
                self.seen = table.status()
                if self._act is not None:
                    table.release_by_force(self.seen[0].name, "ben@desk")
                    # The holder learns of it at its next heartbeat.
                    self._act.wait(60)

    def note(self, text: str) -> None:
        self.notes.append(text)
        if self._act is not None and "its lease is lost" in text:
            self._act.set()


@pytest.fixture
def board(tmp_path: Path) -> str:
    return slow_board(tmp_path / "board.toml")


def options_of(model: Path, shared: str, trials: int, device: str, **more: object) -> DeployOptions:
    return DeployOptions(model, threads=1, trials=trials, train=False, device=device, records=shared, **more)


def test_a_board_is_leased_as_long_as_it_is_tuned(tmp_path: Path, shared: str, board: str) -> None:
    watcher = Watcher(shared, 2)
    result = tune_model(options_of(perceptron(tmp_path / "net.onnx"), shared, 4, board), watcher)
    (there,) = watcher.seen
    assert (there.name, there.job, there.health) == (board, "tune net", "held")
    with LeaseTable(shared) as table:
        (after,) = table.status()
        assert after.health == "free"
    with RecordStore(shared) as store:
        kept = list(store)
    assert (
        len(kept) == len(trials_of(kept)) == result.tuning.trials + references(kept) == 4 + references(kept)
    )
    # The password of the URL is in no result.
    assert shared.split(":")[2].partition("@")[0] not in repr(result)


def test_a_board_that_another_host_has_is_waited_for_or_refused(
    tmp_path: Path, shared: str, board: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron(tmp_path / "net.onnx")
    with connect(board) as device:
        place = device.place
    other = Request(place, "theirs", "anna@elsewhere", "tune resnet", "1")
    with LeaseTable(shared) as table:
        assert table.take(other) is None
        for command in ("tune", "deploy"):
            given = [command, str(model), "--trials", "2", "--device", board, "--records", shared]
            assert main([*given, "--no-train", "--threads", "1"]) == 1
            error = capsys.readouterr().err
            assert "anna@elsewhere has had it for" in error and "(tune resnet); wait for it" in error
        timer = threading.Timer(1.0, lambda: table.release(other))
        timer.start()
        result = tune_model(options_of(model, shared, 2, board, wait_s=60.0), Silence())
        timer.join()
    assert result.tuning.trials == 2


def test_a_board_that_is_released_by_force_is_let_go_of(
    tmp_path: Path, shared: str, board: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("host.leases.heartbeats.RENEW_S", 0.1)
    watcher = Watcher(shared, 2, threading.Event())
    options = options_of(perceptron(tmp_path / "net.onnx"), shared, 8, board)
    with pytest.raises(LeaseLost, match=r"^[^(]*: its lease is lost, ben@desk released it by force"):
        tune_model(options, watcher)
    assert [text for text in watcher.notes if "its lease is lost, ben@desk released it by force" in text]
    with RecordStore(shared) as store:
        assert len(list(store)) >= 2
    with LeaseTable(shared) as table:
        assert table.status()[0].health == "free"


def test_boards_of_one_command_have_a_lease_each(tmp_path: Path, shared: str, boards: LocalFleet) -> None:
    watcher = Watcher(shared, 2)
    options = options_of(perceptron(tmp_path / "net.onnx"), shared, 6, "left,right")
    tune_model(options, watcher)
    assert [(one.name, one.health) for one in watcher.seen] == [("left", "held"), ("right", "held")]
    with LeaseTable(shared) as table:
        assert {one.health for one in table.status()} == {"free"}


def test_a_server_that_restarts_in_the_middle_costs_no_measurement(
    tmp_path: Path, server: Server, shared: str, board: str
) -> None:
    class Restart(Watcher):
        def advance(self, done: int, total: int) -> None:
            before, _ = self.seen, super().advance(done, total)
            if self.seen and not before:
                server.kill()
                threading.Timer(0.5, server.start).start()

    watcher = Restart(shared, 2)
    result = tune_model(options_of(perceptron(tmp_path / "net.onnx"), shared, 8, board), watcher)
    assert watcher.seen
    with RecordStore(shared) as store:
        kept = list(store)
    assert (
        len(kept) == len(trials_of(kept)) == result.tuning.trials + references(kept) == 8 + references(kept)
    )
