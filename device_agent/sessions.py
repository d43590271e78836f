"""Sessions: one executor process each, watched, and replaced when it dies.

Executors are started by the daemon's main thread only: the kernel ties PR_SET_PDEATHSIG to the thread that
forked, and the threads that serve clients come and go.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from device_agent.wire import AgentError

_POLL_S = 0.05
_STDERR_TAIL_BYTES = 4096
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Terms(NamedTuple):
    """What a session may use.

    Attributes:
        engine: of `device_agent.engines`.
        threads: for the engine.
        time_limit_s: longest time for one command or one RPC request.
        memory_limit_bytes: largest resident memory, 0 for no limit.
        python: interpreter of the executor.
    """

    engine: str
    threads: int
    time_limit_s: float
    memory_limit_bytes: int
    python: str


class _Executor:
    """One process and what it last said."""

    def __init__(self, process: Any, key: str) -> None:
        self.process = process
        self.key = key
        self.port = 0
        self.ready = threading.Event()
        self.reason: Optional[str] = None
        self.refusal: Optional[AgentError] = None
        self.paused = False
        self.busy: Dict[str, Tuple[float, float]] = {}
        self._pending = b""

    def feed(self, data: bytes, default_limit_s: float) -> None:
        """Takes what came through the status pipe."""
        lines = (self._pending + data).split(b"\n")
        self._pending = lines.pop()
        for line in lines:
            if not self.ready.is_set():
                self._announced(json.loads(line.decode()))
                continue
            words = line.decode().split()
            if words[0] == "B":
                limit = float(words[2]) or default_limit_s
                self.busy[words[1]] = (time.monotonic() + limit, limit)
            else:
                self.busy.pop(words[1], None)

    def _announced(self, fields: Dict[str, Any]) -> None:
        if "port" in fields:
            self.port = int(fields["port"])
            self.busy.clear()
        else:
            error = fields["error"]
            self.refusal = AgentError(str(error["kind"]), str(error["message"]))
        self.ready.set()

    def signal(self, number: int) -> None:
        """Signals the executor and what it may have started."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass  # it ended by itself


class Session:
    """One session: its terms, its folder and its present executor."""

    def __init__(self, name: str, owner: int, terms: Terms, workdir: str) -> None:
        self.name = name
        self.owner = owner
        self.terms = terms
        self.workdir = workdir
        self.executor: Optional[_Executor] = None
        self.generation = 0


class Sessions:
    """All sessions of a daemon.

    Args:
        folder: for the sessions' files; emptied of each session when it closes.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sessions: Dict[str, Session] = {}
        self._lock = threading.RLock()
        self._orders: queue.Queue[Tuple[Session, threading.Event]] = queue.Queue()
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._count = 0
        self._checked_s = 0.0

    # -- for the threads that serve clients

    def open(self, owner: int, terms: Terms) -> Dict[str, Any]:
        """Opens a session and waits for its executor.

        Raises:
            AgentError: another client uses the device, or the executor does not start.
        """
        with self._lock:
            others = [session for session in self._sessions.values() if session.owner != owner]
            if others:
                raise AgentError(
                    "busy", "the device is in use: another client has %d open sessions" % len(others)
                )
            self._count += 1
            name = "s%d" % self._count
            workdir = os.path.join(self._folder, name)
            session = Session(name, owner, terms, workdir)
            self._sessions[name] = session
        try:
            _make_workdir(workdir)
            return self._start(session)
        except (AgentError, OSError):
            self.close(name)
            raise

    def attach(self, name: str) -> Dict[str, Any]:
        """Where the session's executor listens; a dead one is replaced first.

        Raises:
            AgentError: no such session, or the executor does not start.
        """
        session = self.get(name)
        with self._lock:
            executor = session.executor
            if executor is not None and executor.reason is None:
                return _contact(session, executor)
        return self._start(session)

    def status(self, name: str, wait_s: float = 0.0) -> Dict[str, Any]:
        """Whether the executor lives, and the reason if not.

        Args:
            name: of the session.
            wait_s: wait so long for its end: a dying process closes its connections before it is gone.
        """
        executor = self.get(name).executor
        until = time.monotonic() + wait_s
        while executor is not None and executor.reason is None and time.monotonic() < until:
            time.sleep(_POLL_S / 5)
        reason = executor.reason if executor else "is not started"
        return {"alive": reason is None, "reason": reason}

    def pause(self, name: str, paused: bool) -> None:
        """Stops or continues the executor; time while stopped does not count as work.

        Raises:
            AgentError: the executor is dead.
        """
        session = self.get(name)
        with self._lock:
            executor = session.executor
            if executor is None or executor.reason is not None:
                reason = executor.reason if executor else "is not started"
                raise AgentError("session_lost", "the executor of session %s %s" % (name, reason))
            if executor.paused == paused:
                return
            executor.paused = paused
            now = time.monotonic()
            for channel, (deadline, limit) in executor.busy.items():
                # While paused the entry holds the time left, otherwise the deadline.
                executor.busy[channel] = (deadline - now if paused else deadline + now, limit)
            executor.signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def get(self, name: str) -> Session:
        """A session by name.

        Raises:
            AgentError: there is none.
        """
        with self._lock:
            if name not in self._sessions:
                raise AgentError("no_session", "no session %s; it was closed or never opened" % name)
            return self._sessions[name]

    def close(self, name: str) -> None:
        """Ends a session and removes its files."""
        with self._lock:
            session = self._sessions.pop(name, None)
            if session is None:
                return
            executor = session.executor
            if executor is not None:
                self._end(executor, "was closed")
        shutil.rmtree(session.workdir, ignore_errors=True)

    def close_owned(self, owner: int) -> None:
        """Ends all sessions of one client."""
        with self._lock:
            names = [name for name, session in self._sessions.items() if session.owner == owner]
        for name in names:
            self.close(name)

    def close_all(self) -> None:
        """Ends all sessions."""
        with self._lock:
            names = list(self._sessions)
        for name in names:
            self.close(name)

    def wake(self) -> None:
        """Has `poll` return soon."""
        os.write(self._wake_writer, b"x")

    def _start(self, session: Session) -> Dict[str, Any]:
        started = threading.Event()
        self._orders.put((session, started))
        self.wake()
        started.wait()
        executor = session.executor
        if executor is None:
            raise AgentError("session_lost", "cannot start %s" % session.terms.python)
        executor.ready.wait()
        if executor.refusal is not None:
            raise executor.refusal
        if executor.reason is not None:
            raise AgentError(
                "session_lost", "the executor of session %s %s" % (session.name, executor.reason)
            )
        return _contact(session, executor)

    # -- for the main thread

    def poll(self) -> None:
        """Starts ordered executors, hears what executors say, ends those that break their terms."""
        for selected, _ in self._selector.select(_POLL_S if self._sessions else 0.25):
            if selected.data is None:
                os.read(self._wake_reader, 4096)
                continue
            self._hear(selected.fileobj, *selected.data)
        while not self._orders.empty():
            session, started = self._orders.get()
            try:
                self._spawn(session)
            finally:
                started.set()
        if time.monotonic() - self._checked_s >= _POLL_S:
            self._checked_s = time.monotonic()
            self._check_all()

    def _spawn(self, session: Session) -> None:
        terms = session.terms
        try:
            with open(os.path.join(session.workdir, "stderr.log"), "wb") as log:
                process = subprocess.Popen(
                    [terms.python, "-m", "device_agent.executor"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=os.path.join(session.workdir, "agent"),
                    env=_environment(session),
                    start_new_session=True,
                )
        except OSError:
            session.executor = None
            return
        executor = _Executor(process, secrets.token_hex(16))
        specification = {
            "engine": terms.engine,
            "threads": terms.threads,
            "key": executor.key,
            "workdir": os.path.join(session.workdir, "rpc"),
            "parent_pid": os.getpid(),
        }
        if terms.time_limit_s > 0:
            executor.busy["start"] = (time.monotonic() + terms.time_limit_s, terms.time_limit_s)
        try:
            process.stdin.write((json.dumps(specification) + "\n").encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it is dead already; _check says why
        os.set_blocking(process.stdout.fileno(), False)
        with self._lock:
            session.executor = executor
            session.generation += 1
        self._selector.register(process.stdout, selectors.EVENT_READ, (session, executor))

    def _hear(self, stream: Any, session: Session, executor: _Executor) -> None:
        try:
            data = os.read(stream.fileno(), 65536)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(stream)
            stream.close()
            self._end(executor, None, session)
            return
        with self._lock:
            executor.feed(data, session.terms.time_limit_s)

    def _check_all(self) -> None:
        with self._lock:
            for session in list(self._sessions.values()):
                executor = session.executor
                if executor is not None and executor.reason is None:
                    self._check(session, executor)

    def _check(self, session: Session, executor: _Executor) -> None:
        if executor.process.poll() is not None:
            self._end(executor, None, session)
            return
        limit = session.terms.memory_limit_bytes
        used = resident_bytes(executor.process.pid)
        if limit and used > limit:
            text = "was killed: it used %.0f MB, its limit is %.0f MB" % (used / 1e6, limit / 1e6)
            self._end(executor, text, session)
            return
        now = time.monotonic()
        for deadline, allowed in [] if executor.paused else list(executor.busy.values()):
            if now > deadline:
                self._end(
                    executor, "was killed: it worked for longer than its limit of %g s" % allowed, session
                )
                return

    def _end(self, executor: _Executor, reason: Optional[str], session: Optional[Session] = None) -> None:
        with self._lock:
            if executor.reason is not None:
                return
            executor.signal(signal.SIGKILL)
            code = executor.process.wait()
            executor.reason = reason or _death(code, session)
            executor.ready.set()


def _contact(session: Session, executor: _Executor) -> Dict[str, Any]:
    return {
        "session": session.name,
        "port": executor.port,
        "key": executor.key,
        "pid": executor.process.pid,
        "generation": session.generation,
    }


def _make_workdir(workdir: str) -> None:
    for part in ("agent", "rpc", "files"):
        os.makedirs(os.path.join(workdir, part), mode=0o700)
    # Executors of another interpreter find this package, and nothing else of ours, through the link.
    os.symlink(os.path.dirname(os.path.abspath(__file__)), os.path.join(workdir, "agent", "device_agent"))


def _environment(session: Session) -> Dict[str, str]:
    terms = session.terms
    environment = dict(os.environ)
    environment.update(
        TVM_NUM_THREADS=str(terms.threads),
        OMP_NUM_THREADS=str(terms.threads),
        # Bound workers of several sessions would all share the first cores.
        TVM_BIND_THREADS="0",
        PYTHONUNBUFFERED="1",
    )
    if terms.python != sys.executable:
        environment.pop("PYTHONPATH", None)
    return environment


def _death(code: int, session: Optional[Session]) -> str:
    if code < 0:
        try:
            text = "crashed with %s" % signal.Signals(-code).name
        except ValueError:
            text = "was ended by signal %d" % -code
    else:
        text = "ended with code %d" % code
    # After a fault stderr ends in a backtrace, after anything else in a message.
    worded = session is not None and (code >= 0 or code == -signal.SIGABRT)
    tail = _last_line(os.path.join(session.workdir, "stderr.log")) if session and worded else ""
    return "%s (%s)" % (text, tail) if tail else text


def _last_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _STDERR_TAIL_BYTES))
            lines: List[str] = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, 0 if it is gone."""
    try:
        with open("/proc/%d/statm" % pid, encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0
