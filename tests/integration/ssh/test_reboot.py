"""A board that is switched off in the middle of a tuning, and one that two hosts want."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from host.commands.tune import tune_model
from host.deploy import DeployOptions
from host.devices import DeviceEntry, Registry
from host.places import records_file
from host.progress import Silence
from host.records import Record, RecordStore
from host.transport import connect
from host.transport.installing import install_agent
from sdk.cli.main import main
from tests.integration.ssh.sshd import Sshd
from tests.integration.test_tuning import perceptron, references, trials_of

_TRIALS = 12


@pytest.fixture
def bench(board: Sshd, entry: DeviceEntry) -> Sshd:
    """A board with the agent."""
    Registry().set_board(entry.name, install_agent(entry).entry.board)
    return board


def agents(board: Sshd) -> list[psutil.Process]:
    """Every process of the board's agent."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if "device_agent" in words and (process.info["environ"] or {}).get("HOME") == str(board.home):
            found.append(process)
    return found


def records() -> list[Record]:
    with RecordStore(records_file()) as store:
        return list(store)


class PowerCut(Silence):
    """Switches a board off after so many trials, and on again later.

    Attributes:
        notes: what was told.
        struck: whether it happened.
    """

    def __init__(self, board: Sshd, after: int, off_s: float) -> None:
        self.notes: list[str] = []
        self.struck = False
        self.on_again = threading.Timer(off_s, board.start)
        self._board = board
        self._after = after

    def advance(self, done: int, total: int) -> None:
        if done == self._after and not self.struck:
            self.struck = True
            processes = agents(self._board)
            assert len(processes) >= 2, "the daemon and an executor"
            for process in processes:
                process.kill()
            self._board.stop()
            self.on_again.start()

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_board_that_restarts_in_the_middle_of_a_tuning(tmp_path: Path, bench: Sshd) -> None:
    options = DeployOptions(
        perceptron(tmp_path / "net.onnx"), threads=1, trials=_TRIALS, train=False, device="bench"
    )
    power = PowerCut(bench, after=4, off_s=3.0)
    result = tune_model(options, power)
    power.on_again.join()
    assert power.struck
    kept = records()
    assert len(kept) == len(trials_of(kept)) == _TRIALS + references(kept)
    assert result.tuning.trials == _TRIALS
    assert not [one.failure for one in kept if one.failure], "no program is blamed for it"
    assert "bench is back" in power.notes
    assert [text for text in power.notes if "trying to reach it again" in text]


def test_a_board_that_stays_off_ends_it_with_what_to_do_and_the_records(
    tmp_path: Path, bench: Sshd, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron(tmp_path / "net.onnx")
    command = ["tune", str(model), "--device", "bench", "--threads", "1", "--trials", "12", "--no-train"]
    with pytest.MonkeyPatch.context() as patch:
        power = PowerCut(bench, after=3, off_s=0.0)
        power.on_again = threading.Timer(0.0, lambda: None)
        patch.setattr("sdk.cli.terminal.ConsoleProgress.advance", lambda self, *step: power.advance(*step))
        assert main([*command, "--reconnect", "1s"]) == 1
    assert "all measurements are stored: run the same command again" in capsys.readouterr().err
    # The first batch was measured together; the second one is not.
    assert 3 <= len(records()) < 12
    bench.start()
    assert main(command) == 0
    assert len(records()) == len(trials_of(records())) == 12 + references(records())


def test_the_second_of_two_hosts_is_told_who_has_the_board_or_waits(
    tmp_path: Path, bench: Sshd, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron(tmp_path / "net.onnx")
    command = ["tune", str(model), "--device", "bench", "--threads", "1", "--trials", "2", "--no-train"]
    with connect("bench") as first:
        session = first.open_session("tvm")
        assert main(command) == 1
        said = capsys.readouterr().err
        assert "bench: the device is in use by" in said
        assert "--wait 10m" in said
        assert records() == []
        leaves = threading.Timer(2.0, session.close)
        leaves.start()
        assert main([*command, "--wait", "1m"]) == 0
        leaves.join()
    assert len(records()) == 2 + references(records())
    assert (
        "tuned     2 trials, beside the first programs of 2 kernels; all trials were made"
        in capsys.readouterr().out
    )
