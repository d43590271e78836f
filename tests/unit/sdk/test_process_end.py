"""How the process of a command ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# A command in place of those of `sdk`, which load packages only when they run.
_COMMAND = """
import sys, types
from sdk.cli.entry import command
sys.modules["sdk.cli.main"] = types.SimpleNamespace(main=run)
sys.exit(command())
"""


def _ended(run: str) -> subprocess.CompletedProcess[str]:
    """A command `run` that has ended, whose output is kept until it is full or written out."""
    program = run + _COMMAND
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=kept)


def test_a_process_ends_with_its_command_and_after_what_packages_do_at_its_end() -> None:
    """Without the time in which the interpreter would free every object, one after the other."""
    program = """
import atexit
class Freed:
    def __del__(self):
        print("freed")
kept = Freed()
def run():
    atexit.register(print, "handler", end="")
    print("done")
    return 3
"""
    done = _ended(program)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\nhandler", "")


def test_what_a_tool_does_at_the_end_is_done_though_it_was_there_first() -> None:
    """As one that measures coverage, which the interpreter loads before any command."""
    program = """
import atexit
atexit.register(print, "measured", end="")
run = lambda: 3
"""
    done = _ended(program)
    assert (done.returncode, done.stdout, done.stderr) == (3, "measured", "")


def test_output_that_cannot_be_written_at_the_end_is_no_success() -> None:
    program = """
import os, sys
def run():
    sys.stdout.write("figures")
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    return 0
"""
    done = _ended(program)
    assert done.returncode == 120
    assert "No space left" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_a_process_without_a_stream_ends_as_any_other_and_keeps_its_place(closed: str) -> None:
    """Of a file that got the number of a stream, what a library prints would be a part."""
    program = """
import os, sys
def run():
    sys.stdin.read(), sys.stdout.flush(), sys.stderr.flush()
    return 5 if os.open(os.devnull, os.O_RDONLY) > 2 else 1
"""
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program + _COMMAND]
    done = subprocess.run(command, capture_output=True, input="", text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_as_an_interruption_and_another_one_does_not_stop_cleaning_up(
    name: str, tmp_path: Path
) -> None:
    """As Ctrl-C that is pressed again, or a login that breaks off."""
    program = """
import os, signal, sys
from pathlib import Path
# Whoever started the tests may ignore it.
signal.signal(signal.NAME, signal.SIG_DFL)
import sdk.api
def slow(*args, **kwargs):
    Path(sys.argv[1]).touch()
    try:
        os.kill(os.getpid(), signal.NAME)
        signal.pause()
    finally:
        os.kill(os.getpid(), signal.NAME)
        Path(sys.argv[1]).unlink()
sdk.api.deploy = slow
from sdk.files.arrays import read_arrays
from sdk.cli.terminal import ConsoleProgress
from sdk.cli.main import main
sys.exit(main(["deploy", "net.onnx"]))
"""
    scratch = tmp_path / "scratch"
    command = [sys.executable, "-c", program.replace("NAME", name), str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130
    assert done.stderr.strip() == "error: interrupted"
    assert not scratch.exists()


def test_cleaning_up_writes_to_nowhere_when_the_terminal_is_gone(tmp_path: Path) -> None:
    program = """
import signal, sys
from pathlib import Path
# Whoever started the tests may ignore it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
import sdk.api
def slow(*args, **kwargs):
    Path(sys.argv[1]).touch()
    try:
        signal.pause()
    finally:
        print("cleaning up")
        Path(sys.argv[1]).unlink()
sdk.api.deploy = slow
from sdk.files.arrays import read_arrays
from sdk.cli.terminal import ConsoleProgress
from sdk.cli.main import main
sys.exit(main(["deploy", "net.onnx"]))
"""
    scratch = tmp_path / "scratch"
    ours, its = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(scratch)], stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    while not scratch.exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 130
    assert not scratch.exists()


def test_errors_that_are_causes_of_each_other_are_looked_at_once() -> None:
    from sdk.cli.main import _while_interrupted

    first, second = KeyError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert not _while_interrupted(first)


def test_cleaning_up_that_hangs_is_ended_by_more_signals() -> None:
    from sdk.cli.main import Interrupted, _Interrupter

    interrupt, ignored = _Interrupter(), 0
    with pytest.raises(Interrupted) as ended:
        try:
            interrupt(signal.SIGINT, None)
        finally:
            while ignored < 10:
                interrupt(signal.SIGINT, None)
                ignored += 1
    assert ignored == 3 and isinstance(ended.value.__context__, Interrupted)


def test_what_goes_on_without_its_terminal_is_not_interrupted_with_it() -> None:
    from sdk.cli import interruptions

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert signal.SIGHUP in interruptions()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as by nohup
        assert set(interruptions()) == {signal.SIGINT, signal.SIGTERM}
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("moment", ["sdk.cli.main", "typer"])
def test_an_interruption_while_packages_are_imported_is_one_line(moment: str) -> None:
    program = f"""
import os, signal, sys
class Interrupter:
    def find_spec(self, name, path, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)
from sdk.cli.entry import main
# What came until now is not seen to: nothing that takes time.
print(sorted(name for name in sys.modules if name.startswith(("host.", "targets.", "typer"))))
sys.stdout.flush()
sys.meta_path.insert(0, Interrupter())
sys.argv[1:] = ["--version"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "[]\n", "error: interrupted\n")


def test_an_interruption_while_packages_are_imported_needs_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sdk.cli import entry

    def gone(descriptor: int, text: bytes) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def ended(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "write", gone)
    monkeypatch.setattr(os, "_exit", ended)
    with pytest.raises(SystemExit) as end:
        entry._leave(signal.SIGHUP, None)
    assert end.value.code == 130
