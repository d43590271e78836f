"""The native executor's readers: one process a kind, asked in turn with Python's."""

from __future__ import annotations

import contextlib
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.case import complaint
from tests.shared_cache import executor_for


class Verdict(NamedTuple):
    """What a reader decides, and why."""

    accepted: bool
    reason: str


class NativeReader:
    """A reader of one kind of input; started when it is first asked.

    Args:
        kind: as `edgetlm-executor --read KIND` has it.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, data: bytes) -> Verdict:
        """What it decides.

        Raises:
            RuntimeError: its process ended.
        """
        if self._process is None:
            command = [str(_executable()), "--read", self._kind]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(struct.pack(">I", len(data)) + data)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # told below
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            self.close()
            raise RuntimeError(f"the native reader of {self._kind} ended with code {process.returncode}")
        text = line[:-1].decode()
        return Verdict(text == "ok", "" if text == "ok" else text.removeprefix("refused "))

    def close(self) -> None:
        """End its process."""
        if self._process is not None:
            self._process.kill()
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            self._process.wait()
            self._process = None


def disagreement(python: Verdict, native: Verdict) -> str:
    """How two readers differ; "" where they decide alike in words that can be shown."""
    if python.accepted != native.accepted:
        return f"Python says {_said(python)}, the native executor {_said(native)}"
    return "" if native.accepted else complaint(native.reason)


def _said(verdict: Verdict) -> str:
    return "ok" if verdict.accepted else f"refused ({verdict.reason})"


def _executable() -> Path:
    return executor_for("x86_64")
