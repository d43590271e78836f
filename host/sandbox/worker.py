"""Files of unknown origin are read in a worker: a process that has hardly any rights, and that can be lost.

What comes back is text in a strict form and files of the worker's scratch folder; nothing is unpickled. A
worker that is over a limit is killed with all that it started.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import host.errors
from device_agent.contract import strict_json
from device_agent.contract.text import printable
from host.closing import Closing
from host.errors import EdgeError, ImportFailed
from host.sandbox import places
from host.sandbox.child import answer, apply
from host.sandbox.environment import environment
from host.sandbox.kernel import own_bytes
from host.sandbox.watch import await_end, end_group, usage

_ANSWER_BYTES = 64 << 20
_TICK_S = 0.1
# In which a process ends that has closed its output.
_ENDING_S = 5.0
# Of computing time for the libraries of a worker.
_PREPARING_S = 120.0


@dataclass(frozen=True)
class Limits:
    """The resources that a worker may use.

    Attributes:
        memory_bytes: of the worker and all that it starts, together.
        cpu_s: of computing time for one answer, together.
        time_s: until it answers.
        file_bytes: of a file that it writes.
        calls: how many answers it gives at most.
    """

    memory_bytes: int
    cpu_s: float
    time_s: float
    file_bytes: int
    calls: int = 1

    def bounds(self) -> dict[str, int]:
        """The same for the kernel, which keeps them for each process: wider, a second guard."""
        return {
            "memory_bytes": self.memory_bytes,
            "cpu_s": int(self.calls * self.cpu_s + _PREPARING_S) + 15,
            "file_bytes": self.file_bytes,
        }


class WorkerLost(EdgeError):
    """A worker ended without an answer.

    Attributes:
        kind: "memory", "time" or "crash".
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Unforeseen(EdgeError):
    """A worker met an error that is none of ours."""


@dataclass(frozen=True)
class Outcome:
    """How a task in a forked child ended.

    Attributes:
        kind: "ok", "error" (one of our own), "unforeseen", "memory", "time" or "crash".
        message: one line; "" where it is ok.
        value: the answer where it is ok.
        memory_bytes: the most that it used, with all that it started.
        seconds: until its end.
    """

    kind: str
    message: str
    value: Any
    memory_bytes: int
    seconds: float


class Worker(Closing):
    """A confined process that answers requests; a context."""

    def __init__(self, read: Sequence[Path], limits: Limits, prepare: Sequence[str] = ()) -> None:
        self._limits = limits
        self.scratch = Path(tempfile.mkdtemp(prefix="edgetlm-apart-")).resolve()
        self.missing: tuple[str, ...] = ()
        self.peak_bytes = 0
        (self.scratch / "tmp").mkdir()
        settings = settings_for(read, self.scratch, limits) | {"prepare": list(prepare)}
        with (self.scratch / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "host.sandbox.child", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self.scratch,
                env=environment(self.scratch),
                start_new_session=True,
            )
        self._started = False
        self._buffer = b""
        # Also where it is not closed, or this process ends by an exception.
        self._end = weakref.finalize(self, _end, self._process, self.scratch)

    def close(self) -> None:
        """End the process and remove its scratch folder."""
        self._end()

    def call(
        self, function: str, request: dict[str, Any], meanwhile: Callable[[], object] = lambda: None
    ) -> Any:
        """The answer of a function in the worker.

        Args:
            function: as `module:name`.
            request: its arguments, plain data.
            meanwhile: called once the worker is at work; what it raises ends the worker.

        Raises:
            WorkerLost: it is over a limit, or crashed.
            Unforeseen: it met an error that is none of ours.
            EdgeError: the error of ours that the function raised.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"function": function, "request": request}).encode() + b"\n")
            self._process.stdin.flush()
        with ThreadPoolExecutor(1, thread_name_prefix="worker") as pool:
            # The limits hold from now on, whatever this process is busy with.
            reply = pool.submit(self._reply)
            try:
                meanwhile()
                wait([reply])
            except BaseException:
                if self._process.returncode is None:
                    end_group(self._process.pid)
                raise
            return unpacked(reply.result())

    def _reply(self) -> dict[str, Any]:
        if not self._started:
            self.missing = tuple(printable(line) for line in self._line(self._limits)["missing"])
            # Libraries are no part of an answer: without compiled modules, as some installers leave a
            # package, PyTorch takes longer than a model may.
            preparing = replace(self._limits, cpu_s=_PREPARING_S, time_s=4 * _PREPARING_S)
            ready = self._line(preparing)
            if "error" in ready:
                return ready
            self._started = True
        return self._line(self._limits)

    def _line(self, limits: Limits) -> dict[str, Any]:
        assert self._process.stdout is not None
        found = _Watch(self._process.pid, self._process.stdout.fileno(), limits)
        line, self._buffer = found.line(self._buffer)
        self.peak_bytes = max(self.peak_bytes, found.peak_bytes)
        if not line:
            raise _lost(_end_code(self._process), found)
        return _parsed(line)


def _end_code(process: subprocess.Popen[bytes]) -> int:
    """The code with which a process ends that answers no more: its own, where it has one."""
    if process.returncode is None:
        await_end(process.pid, _ENDING_S)
    end_group(process.pid)
    return process.wait()


def _end(process: subprocess.Popen[bytes], scratch: Path) -> None:
    if process.returncode is None:
        end_group(process.pid)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    shutil.rmtree(scratch, ignore_errors=True)


def settings_for(read: Sequence[Path], scratch: Path, limits: Limits) -> dict[str, Any]:
    """The settings of the confinement, as the worker's process gets them."""
    return {
        "run": [str(place) for place in places.programs()],
        "read": [str(place) for place in (*places.system(), *read)],
        "write": [str(scratch), "/dev/null"],
        "names": [str(places.root())],
        "bounds": limits.bounds(),
    }


def forked(
    function: str,
    request: dict[str, Any],
    read: Sequence[Path],
    scratch: Path,
    limits: Limits,
) -> Outcome:
    """Run a function in a confined child of this process: cheap where its libraries are loaded already.

    For many short tasks, such as tests with mutated files. This process should have no busy threads.

    Args:
        function: as `module:name`.
        request: its arguments, plain data.
        read: what the child may read, besides the interpreter and its libraries.
        scratch: the folder that it may write in.
        limits: of the child and all that it starts, beyond the memory that this process has already.
    """
    bounded = replace(limits, memory_bytes=limits.memory_bytes + own_bytes("VmData"))
    settings = settings_for(read, scratch, bounded)
    limits = replace(limits, memory_bytes=limits.memory_bytes + own_bytes("RssAnon"))
    receive, send = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _as_child(send, settings, scratch, function, request)
    os.close(send)
    watch = _Watch(pid, receive, limits)
    try:
        line, _ = watch.line(b"")
        if not line:
            await_end(pid, _ENDING_S)
    finally:
        os.close(receive)
        end_group(pid)
        _, status = os.waitpid(pid, 0)
    seconds, peak = time.monotonic() - started, watch.peak_bytes
    if not line:
        lost = _lost(os.waitstatus_to_exitcode(status), watch)
        return Outcome(lost.kind, str(lost), None, peak, seconds)
    try:
        return Outcome("ok", "", unpacked(_parsed(line)), peak, seconds)
    except WorkerLost as error:
        return Outcome(error.kind, str(error), None, peak, seconds)
    except EdgeError as error:
        kind = "unforeseen" if isinstance(error, Unforeseen) else "error"
        return Outcome(kind, printable(error), None, peak, seconds)


def _as_child(
    send: int, settings: dict[str, Any], scratch: Path, function: str, request: dict[str, Any]
) -> None:
    """Never returns: nothing of the parent's, such as its handlers at exit, is to run here."""
    code = 1
    try:
        os.setsid()
        faulthandler.disable()
        sink = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(sink, descriptor)
        os.chdir(scratch)
        os.environ.update(environment(scratch))
        tempfile.tempdir = None
        apply(settings)
        reply = memoryview(json.dumps(answer(function, request)).encode() + b"\n")
        while reply:
            reply = reply[os.write(send, reply) :]
        code = 0
    finally:
        os._exit(code)


def unpacked(reply: dict[str, Any]) -> Any:
    """The value of a reply, or its error.

    Raises:
        EdgeError: as the worker said; `Unforeseen` where its error is none of ours.
        WorkerLost: it had not enough memory.
    """
    if "error" not in reply:
        return reply.get("value")
    name, message = str(reply["error"]), printable(reply.get("message", ""))
    if name == "MemoryError":
        raise WorkerLost("memory", "it needs more memory than it may have")
    kind = getattr(host.errors, name, None)
    if kind is ImportFailed:
        operator = reply.get("operator")
        raise ImportFailed(message, printable(operator, 200) if isinstance(operator, str) else None)
    if isinstance(kind, type) and issubclass(kind, EdgeError):
        raise kind(message)
    raise Unforeseen(f"{printable(name, 60)}: {message}" if message else printable(name, 60))


class _Watch:
    """Waits for a line of a process and ends it when it is over a limit."""

    def __init__(self, pid: int, descriptor: int, limits: Limits) -> None:
        self._pid, self._descriptor, self._limits = pid, descriptor, limits
        self._start = usage(pid).cpu_s
        self.peak_bytes = 0
        self.over = ""

    def line(self, buffer: bytes) -> tuple[bytes, bytes]:
        """A line and what follows it; an empty line where the process ended or was ended."""
        ends = time.monotonic() + self._limits.time_s
        found, more = bytearray(buffer), buffer
        # What was looked at is not looked at again: an answer may be long.
        while b"\n" not in more:
            if select.select([self._descriptor], [], [], _TICK_S)[0]:
                more = os.read(self._descriptor, 1 << 16)
                found += more
                if not more:
                    return b"", b""
                if len(found) > _ANSWER_BYTES:
                    self.over = "answer"
                    end_group(self._pid)
                    return b"", b""
                continue
            used = usage(self._pid)
            self.peak_bytes = max(self.peak_bytes, used.memory_bytes)
            if used.memory_bytes > self._limits.memory_bytes:
                self.over = "memory"
            elif used.cpu_s - self._start > self._limits.cpu_s or time.monotonic() > ends:
                self.over = "time"
            if self.over:
                end_group(self._pid)
                return b"", b""
        self.peak_bytes = max(self.peak_bytes, usage(self._pid).memory_bytes)
        line, _, rest = found.partition(b"\n")
        return bytes(line), bytes(rest)

    def limits(self) -> Limits:
        """The limits that the worker ran under."""
        return self._limits


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        reply = strict_json.parse(line, _ANSWER_BYTES, "the answer")
    except ValueError as error:
        raise WorkerLost("crash", f"its answer is damaged: {error}") from error
    if not isinstance(reply, dict):
        raise WorkerLost("crash", "its answer is damaged")
    return reply


def _lost(code: int, watch: _Watch) -> WorkerLost:
    """Why a process ended without an answer."""
    limits = watch.limits()
    kind = watch.over or ("time" if code == -signal.SIGXCPU else "crash")
    if kind == "memory":
        return WorkerLost("memory", f"it needs over {limits.memory_bytes / 1e9:.1f} GB of memory")
    if kind == "time":
        return WorkerLost("time", f"it takes over {limits.cpu_s:.0f} s of computing")
    if kind == "answer":
        return WorkerLost("crash", f"its answer has over {_ANSWER_BYTES >> 20} MiB")
    if code == -signal.SIGKILL:
        return WorkerLost("crash", "the system ended the process that read it (out of memory?)")
    if code < 0:
        return WorkerLost("crash", f"the process that read it crashed ({signal.Signals(-code).name})")
    return WorkerLost("crash", f"the process that read it ended with code {code}")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for `forked`, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="edgetlm-apart-") as folder:
        place = Path(folder).resolve()
        (place / "tmp").mkdir()
        yield place
