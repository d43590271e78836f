"""The executor process of a session: start it, read its status, stop it, and explain its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from device_agent.board.process_usage import usage
from device_agent.contract.fields import Fields
from device_agent.contract.limits import LIMITS
from device_agent.contract.strict_json import parse
from device_agent.contract.text import printable
from device_agent.errors import AgentError

_STDERR_TAIL_BYTES = 4096
_START_S = 120.0
_STOPPING_S = 1.0
_PIECE_BYTES = 65536
_SHOWN_CHARACTERS = 80
# What an executor reports after its first line: that work begins on a channel, with a limit of seconds (0 for
# the session's), or that it ends.
_WORK = re.compile(rb"B (frames|rpc) ([0-9][0-9.e+-]{0,30})|I (frames|rpc)")
_LINES = re.compile(rb"(?:(?:B (?:frames|rpc) [0-9][0-9.e+-]{0,30}|I (?:frames|rpc))\n)*")
_CHANNELS = (b"frames", b"rpc")
_LIMITS = LIMITS.wire
# Names the session in the environment of its processes.
_MARK = "EDGETLM_SESSION"


class SessionOptions(NamedTuple):
    """The options of a session.

    Attributes:
        engine: of `device_agent.execute.engines`.
        threads: for the engine.
        time_limit_s: longest time for one command or one RPC request.
        memory_limit_bytes: largest resident memory, 0 for no limit.
        command: command line of the executor.
        site: folder of the payload that a Python executor imports from, "" for its interpreter's own.
        meter: command line of the process that reads power sensors.
        keys: file of the keys whose bundles may be loaded.
        system_root: prefix of all system paths; "/" except in tests.
    """

    engine: str
    threads: int
    time_limit_s: float
    memory_limit_bytes: int
    command: List[str]
    site: str
    meter: List[str]
    keys: str
    system_root: str = "/"


class ExecutorProcess:
    """One executor process and its last status.

    Attributes:
        port: on which it listens, once `ready` is set.
        key: its secret.
        reason: how it ended, None while it runs.
        refusal: the error that it reported instead of starting.
    """

    def __init__(self, options: SessionOptions, workdir: str) -> None:
        """Starts the process; OSError if the command does not exist.

        The kernel will kill it when the calling thread ends (PR_SET_PDEATHSIG).
        """
        self.key = secrets.token_hex(16)
        self.port = 0
        self.ready = threading.Event()
        self.reason: Optional[str] = None
        self.refusal: Optional[AgentError] = None
        self._options = options
        self._workdir = workdir
        self._log = os.path.join(workdir, "stderr.log")
        self._pending = b""
        # Bytes that it reported in the second that began at this time.
        self._status_bytes, self._status_since_s = 0, 0.0
        self._paused = False
        # By channel: the deadline (while paused, the time left) and the limit it came from.
        self._deadlines: Dict[str, Tuple[float, float]] = {}
        # The import of an engine does not depend on the model, and on a busy board it may take long.
        limit_s = max(options.time_limit_s, _START_S)
        self._deadlines["start"] = (time.monotonic() + limit_s, limit_s)
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                options.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=os.path.join(workdir, "agent"),
                env=_environment(options, workdir),
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.status = self._process.stdout
        os.set_blocking(self.status.fileno(), False)
        specification = {
            "engine": options.engine,
            "threads": options.threads,
            "key": self.key,
            "workdir": os.path.join(workdir, "rpc"),
            "parent_pid": os.getpid(),
            "system_root": options.system_root,
            "meter": options.meter,
            "trust_file": options.keys,
        }
        # If it is dead already, its end will be noticed and explained like any other.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write((json.dumps(specification) + "\n").encode())

    @property
    def pid(self) -> int:
        """The process id of the executor."""
        return self._process.pid

    @property
    def busy(self) -> bool:
        """Whether it has reported work, and is not stopped."""
        return bool(self._deadlines) and not self._paused

    def read_status(self) -> bool:
        """Reads from the status pipe; False when the pipe was closed.

        A model's own code can write into the pipe, so the data is not trusted. Anything that is not in the
        protocol ends the executor, with that as the reason.
        """
        try:
            data = os.read(self.status.fileno(), _PIECE_BYTES)
        except BlockingIOError:
            return True
        if self.reason is None:
            try:
                self._take(data)
            except ValueError as error:
                self.end("was killed: its executor sent %s" % printable(error))
        return bool(data)

    def _take(self, data: bytes) -> None:
        now = time.monotonic()
        if now - self._status_since_s >= 1.0:
            self._status_bytes, self._status_since_s = 0, now
        self._status_bytes += len(data)
        if self._status_bytes > _LIMITS.status_bytes_per_s:
            raise ValueError("more than %d bytes of status in a second" % _LIMITS.status_bytes_per_s)
        said = self._pending + data
        if not self.ready.is_set():
            first, newline, said = said.partition(b"\n")
            _check_length(first)
            if not newline:
                self._pending = first
                return
            self._take_first_line(first)
        lines, newline, self._pending = said.rpartition(b"\n")
        _check_length(self._pending)
        if newline:
            self._take_lines(lines + newline)

    def _take_lines(self, lines: bytes) -> None:
        # A session of many small requests reports many lines: all are read at once.
        if not _LINES.fullmatch(lines):
            wrong = next(line for line in lines.split(b"\n") if not _WORK.fullmatch(line))
            _check_length(wrong)
            shown = wrong.decode("utf-8", "backslashreplace")
            raise ValueError("a status that is none: %s" % printable(shown, _SHOWN_CHARACTERS))
        for channel in _CHANNELS:
            end = lines.rfind(channel)
            if end >= 0:  # the last line of a channel is what it does now
                self._take_line(lines[lines.rfind(b"\n", 0, end) + 1 : lines.index(b"\n", end)])

    def _take_line(self, line: bytes) -> None:
        match = _WORK.fullmatch(line)
        assert match is not None
        if match.group(3):
            self._deadlines.pop(match.group(3).decode(), None)
            return
        given = float(match.group(2))
        if not given <= _LIMITS.seconds:
            raise ValueError("a time limit of %g s" % given)
        limit = given or self._options.time_limit_s
        now = time.monotonic()
        # While it is paused the time that is left is kept, not the moment at which it ends.
        self._deadlines[match.group(1).decode()] = (limit if self._paused else now + limit, limit)

    def _take_first_line(self, line: bytes) -> None:
        values = parse(line, _LIMITS.status_line_bytes, "a first line that")
        if not isinstance(values, dict):
            raise ValueError("a first line that is no object")
        fields = Fields(values, lambda text: ValueError("a first line whose %s" % text))
        if fields.has("port"):
            self.port = fields.whole("port", 1, 65535)
            self._deadlines.clear()
        else:
            error = fields.object("error")
            kind = error.text("kind", _LIMITS.name_characters)
            self.refusal = AgentError(kind, printable(error.text("message"), _LIMITS.message_characters))
        self.ready.set()

    def pause(self, paused: bool) -> None:
        """Stops or continues it; time while stopped does not count as work."""
        if self._paused == paused:
            return
        self._paused = paused
        now = time.monotonic()
        for channel, (deadline, limit) in self._deadlines.items():
            self._deadlines[channel] = (deadline - now if paused else deadline + now, limit)
        self._signal(signal.SIGSTOP if paused else signal.SIGCONT)
        until = now + _STOPPING_S
        # A thread that runs on another core stops when it next enters the kernel.
        while paused and not _all_stopped(self.pid) and time.monotonic() < until:
            time.sleep(0.001)

    def broken_limit(self) -> Optional[str]:
        """The limit that it exceeds now, as a sentence; None if it exceeds none."""
        limit = self._options.memory_limit_bytes
        used = usage(self.pid).resident_bytes
        if limit and used > limit:
            return "was killed: it used %.0f MB, its limit is %.0f MB" % (used / 1e6, limit / 1e6)
        now = time.monotonic()
        for deadline, allowed in [] if self._paused else self._deadlines.values():
            if now > deadline:
                return "was killed: it worked for longer than its limit of %g s" % allowed
        return None

    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def end(self, reason: Optional[str]) -> None:
        """Kills the process and its descendants; the reason None stands for how the process ended."""
        if self.reason is not None:
            return
        self._signal(signal.SIGKILL)
        self.reason = reason or self._end_reason(self._process.wait())
        self._process.wait()
        kill_leftovers(self._workdir)
        self.ready.set()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.killpg(self.pid, number)

    def _end_reason(self, code: int) -> str:
        if code < 0:
            try:
                text = "crashed with %s" % signal.Signals(-code).name
            except ValueError:
                text = "was ended by signal %d" % -code
        else:
            text = "ended with code %d" % code
        # After a fault stderr ends in a backtrace, after anything else in a message.
        has_message = code >= 0 or code == -signal.SIGABRT
        tail = _last_line(self._log) if has_message else ""
        return "%s (%s)" % (text, tail) if tail else text


def _check_length(line: bytes) -> None:
    if len(line) > _LIMITS.status_line_bytes:
        raise ValueError("a line of status of more than %d bytes" % _LIMITS.status_line_bytes)


def _environment(options: SessionOptions, workdir: str) -> Dict[str, str]:
    environment = dict(os.environ)
    environment.update(thread_variables(options.threads), PYTHONUNBUFFERED="1")
    environment[_MARK] = workdir
    if options.site:
        environment["PYTHONPATH"] = options.site
    elif options.command[0] != sys.executable:
        environment.pop("PYTHONPATH", None)
    return environment


def thread_variables(threads: int) -> Dict[str, str]:
    """The variables of a process whose engine computes with so many threads."""
    return {
        "TVM_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        # NumPy only carries arrays here and needs no threads.
        "OPENBLAS_NUM_THREADS": "1",
        "TVM_BIND_THREADS": "1" if _takes_all_cores(threads) else "0",
    }


def _takes_all_cores(threads: int) -> bool:
    """Whether an engine's threads are as many as the machine has cores, all of which it may use.

    TVM then binds each of its workers to a core. The system puts a worker that is woken on the core of the
    thread that wakes it, where both share that core until the system's next balance. Fewer threads stay free:
    TVM would bind them to the first cores, which those of several sessions would share.
    """
    return threads == len(os.sched_getaffinity(0)) == os.cpu_count()


def kill_leftovers(folder: str) -> None:
    """Kills the descendants of executors that worked in this folder, by a mark in their environment.

    Args:
        folder: of a session, or of all sessions of an agent that was killed.
    """
    mark = ("%s=%s" % (_MARK, folder)).encode()
    ended = True
    while ended:  # one that is killed may have started another meanwhile
        ended = False
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                with open("/proc/%s/environ" % entry, "rb") as file:
                    marked = any((word + b"/").startswith(mark + b"/") for word in file.read().split(b"\0"))
                if marked and not _has_ended(int(entry)):
                    os.kill(int(entry), signal.SIGKILL)
                    ended = True


def _has_ended(pid: int) -> bool:
    with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] in "ZX"


def _all_stopped(pid: int) -> bool:
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/stat" % (pid, task), encoding="utf-8", errors="replace") as file:
                # The state follows the name, which is in parentheses and may hold anything.
                if file.read().rpartition(")")[2].split()[0] not in "TtZX":
                    return False
    except OSError:
        pass  # a thread or the whole process ended meanwhile
    return True


def _last_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _STDERR_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((printable(line, 300) for line in reversed(lines) if line.strip()), "")
