"""Ctrl-C and a full disk in the middle of `sdk tune` and `sdk profile`: nothing is left half-done."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from host.records import RecordStore
from tests.integration.small_models import convnet

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of the test's own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(options, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Takes all space of a file system, to the last byte that one write gets."""
    with (folder / "ballast").open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


class Run:
    """A command that something happens to, once it has printed a line that begins with a word.

    Args:
        arguments: of `sdk`.
        place: for temporary files.
        word: of the line.
        fault: what happens then; gets the process.
    """

    def __init__(
        self, arguments: list[str], place: Path, word: str, fault: Callable[[subprocess.Popen[str]], None]
    ) -> None:
        place.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)}
        command = [sys.executable, "-u", "-m", "sdk.cli", *arguments]
        self.children: list[psutil.Process] = []
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            self.lines = []
            for line in process.stdout:
                self.lines.append(line)
                if line.startswith(word) and not self.children:
                    self.children = psutil.Process(process.pid).children(recursive=True)
                    fault(process)
            errors = process.stderr
            assert errors is not None
            self.error = errors.read().strip()
        self.code = process.returncode
        assert psutil.wait_procs(self.children, timeout=60)[1] == []
        # PyTorch keeps a folder of its own for each user beside temporary files.
        paths = [path for path in place.rglob("*") if not path.name.startswith("torchinductor_")]
        self.left = sorted(str(path.relative_to(place)) for path in paths)


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def interrupt_after_records(store: Path) -> Callable[[subprocess.Popen[str]], None]:
    """Interrupts a tuning once it has written records, in the middle of its measurements."""

    def wait(process: subprocess.Popen[str]) -> None:
        while process.poll() is None and count(store) < 2:
            time.sleep(0.05)
        interrupt(process)

    return wait


def count(store: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        try:
            return int(connection.execute("select count(*) from records").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def check_store(path: Path) -> int:
    """How many records a store has, whole ones."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    with RecordStore(path) as store:
        found = list(store)
    assert not any(record.failure for record in found), "no program is at fault"
    return len(found)


def written(tmp_path: Path) -> set[str]:
    """What a command left, besides what it was given, the user's home and its temporary files."""
    given = {"net.onnx", "disk", "home", "scratch", "work"}
    # A folder that a report was to be written to is no harm.
    own = {path.name for path in tmp_path.iterdir() if path.is_file() or list(path.iterdir())}
    return (own - given) | {path.name for path in (tmp_path / "work").iterdir()}


def tune(tmp_path: Path, store: Path) -> list[str]:
    model = convnet(tmp_path / "net.onnx")
    outputs = ["--report", str(tmp_path / "out" / "report.html"), "--json", str(tmp_path / "out.json")]
    return ["tune", str(model), "--threads", "1", "--trials", "60", "--records", str(store), *outputs]


def test_an_interrupted_tuning_keeps_whole_records_and_nothing_else(tmp_path: Path) -> None:
    store = tmp_path / "records.sqlite"
    arguments = tune(tmp_path, store)
    run = Run(arguments, tmp_path / "scratch", "build", interrupt_after_records(store))
    assert (run.code, run.error) == (130, "error: interrupted"), run.lines
    assert run.left == []
    assert written(tmp_path) == {store.name}
    assert 2 <= check_store(store) < 60


@pytest.mark.parametrize("word", ["propose", "build"])
def test_a_disk_that_fills_up_in_a_tuning(word: str, disk: Path, tmp_path: Path) -> None:
    """No program counts as failed, and the device is not looked for again."""
    store = tmp_path / "records.sqlite"
    run = Run(tune(tmp_path, store), disk / "scratch", word, lambda process: fill(disk))
    assert run.code == 1 and "no space left" in run.error and "\n" not in run.error, run.error
    assert not any("reach it again" in line for line in run.lines)
    assert run.left == []
    check_store(store)


def test_a_disk_of_records_that_fills_up_keeps_those_before(disk: Path, tmp_path: Path) -> None:
    store = disk / "records.sqlite"
    run = Run(tune(tmp_path, store), tmp_path / "scratch", "propose", lambda process: fill(disk))
    assert run.code == 1
    assert run.error == f"error: record store {store}: no space left: free some and run again"
    assert run.left == []
    (disk / "ballast").unlink()
    check_store(store)
    assert written(tmp_path) == set()


@pytest.mark.parametrize("word", ["compile", "verify"])
def test_an_interrupted_measurement_leaves_nothing(word: str, tmp_path: Path) -> None:
    arguments = ["profile", str(convnet(tmp_path / "net.onnx")), "--json", str(tmp_path / "out.json")]
    run = Run(arguments, tmp_path / "scratch", word, interrupt)
    assert (run.code, run.error) == (130, "error: interrupted"), run.lines
    assert run.left == []
    assert written(tmp_path) == set()


@pytest.mark.parametrize("word", ["import", "compile"])
def test_a_disk_that_fills_up_in_a_measurement_leaves_nothing(word: str, disk: Path, tmp_path: Path) -> None:
    """Nor is the model taken for one that the compiler cannot express."""
    arguments = ["profile", str(convnet(tmp_path / "net.onnx")), "--json", str(tmp_path / "out.json")]
    run = Run(arguments, disk / "scratch", word, lambda process: fill(disk))
    assert run.code == 1 and "no space left" in run.error and "\n" not in run.error, run.error
    assert not any("cannot be compiled" in line for line in run.lines)
    assert run.left == []
    assert written(tmp_path) == set()
