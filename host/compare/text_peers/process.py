"""The host's side of an engine's process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from device_agent.contract.text import printable
from host.compare.text_peers.process_memory import INTERVAL_S, PeakMemory
from host.errors import EngineError

OUR_ENGINE = "device_agent.text_engines.edgetlm_engine"
"""Module of the process that runs bundles."""

# Of one command; a prompt of a large model on a small machine takes minutes.
TIME_LIMIT_S = 1800.0
_STDERR_BYTES = 4000
_SHOWN = 120
# What has the packages of this product.
_ROOT = Path(__file__).resolve().parents[3]
_PACKAGE = "device_agent"
_ENGINES = f"{_PACKAGE}/text_engines"
_MODULES = ("__init__.py", "contract/__init__.py", "contract/quiet.py")


class EngineProcess:
    """A process that answers commands, see `device_agent.text_engines.worker`. A context manager.

    Args:
        name: of the engine, for messages.
        module: what to run.
        threads: that it may compute with.
        python: interpreter of its environment; by default this one.
        arguments: of its command line.

    Raises:
        EngineError: the interpreter cannot be started.
    """

    def __init__(
        self,
        name: str,
        module: str,
        threads: int,
        python: str = sys.executable,
        arguments: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.peak_bytes = 0
        count = {"OMP_NUM_THREADS": str(threads), "TVM_NUM_THREADS": str(threads)}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close
        self._folder = tempfile.TemporaryDirectory(prefix="edgetlm-engine-")
        root = _ROOT if python == sys.executable else _engines_alone(Path(self._folder.name))
        try:
            self._process = subprocess.Popen(
                [python, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                encoding="utf-8",
                errors="replace",
                cwd=root,
                env=os.environ | count | {"PYTHONWARNINGS": "ignore"},
            )
        except (OSError, ValueError) as error:
            self._errors.close()
            self._folder.cleanup()
            raise EngineError(
                f"{name}: {printable(python)} cannot be started ({printable(error)}): give an interpreter"
            ) from error
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, name=f"answers of {name}", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._process.stdout as lines:
                for line in lines:
                    self._lines.put(line)
        finally:
            self._lines.put(None)

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a command.

        Raises:
            EngineError: the engine refused, the process ended, it took too long, or said what is no answer.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=TIME_LIMIT_S)
        except BrokenPipeError:
            line = None
        except queue.Empty:
            raise EngineError(f"{self.name}: {command} took more than {TIME_LIMIT_S:.0f} s") from None
        if line is None:
            code = self._process.wait()
            raise EngineError(
                f"{self.name}: the process ended with {code} during {command}: {self._last_words()}"
            )
        answer = _read_answer(line)
        if answer is None:
            raise EngineError(f"{self.name}: {command}: not an answer: {printable(line, _SHOWN)}")
        if "error" in answer:
            raise EngineError(f"{self.name}: {command}: {printable(answer['error'])}")
        return answer

    def watched(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The same while the memory of the process is looked at, which slows it: for what is not timed.

        Raises:
            EngineError: as `ask`.
        """
        with PeakMemory(self._process.pid) as memory:
            answer = self.ask(command, **arguments)
            # What is kept is looked at too, however short the command was.
            time.sleep(2 * INTERVAL_S)
        self.peak_bytes = max(self.peak_bytes, memory.peak_bytes)
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(self._errors.tell() - _STDERR_BYTES, 0))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return printable(lines[-1]) if lines else "no message"

    def close(self) -> None:
        """End the process. It may have ended before."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._errors.close()
        self._folder.cleanup()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_answer(line: str) -> dict[str, Any] | None:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def seconds_of(name: str, command: str, answer: Mapping[str, Any]) -> float:
    """The seconds in an answer.

    Args:
        name: of the engine, for messages.
        command: that was answered.
        answer: as the engine gave it.

    Raises:
        EngineError: it has no time above 0.
    """
    seconds: Any = answer.get("seconds")
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0.0 < seconds < math.inf:
        raise EngineError(f"{name}: {command}: it says no time above 0: {printable(seconds, _SHOWN)}")
    return float(seconds)


def _engines_alone(folder: Path) -> Path:
    """The modules of engines by themselves: another interpreter is not to find the packages of this one."""
    (folder / _PACKAGE / "contract").mkdir(parents=True)
    for name in _MODULES:
        shutil.copyfile(_ROOT / _PACKAGE / name, folder / _PACKAGE / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_ROOT / _ENGINES, folder / _ENGINES, ignore=ignored)
    return folder
