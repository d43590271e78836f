"""Sessions: each has an executor process, which is monitored and replaced when it dies.

Executors are started by the daemon's main thread only: the kernel ties PR_SET_PDEATHSIG to the thread that
forked, and the threads that serve clients come and go.
"""

from __future__ import annotations

import os
import queue
import selectors
import shutil
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple

from device_agent.board.process_usage import Usage, usage
from device_agent.contract.text import printable
from device_agent.errors import AgentError
from device_agent.serve.control import CODE
from device_agent.serve.executor_process import ExecutorProcess, SessionOptions
from device_agent.serve.reservation import Client, DeviceReservation

_POLL_S = 0.05
_IDLE_POLL_S = 0.25


class Session:
    """One session: its options, its folder and its current executor."""

    def __init__(self, name: str, owner: Client, options: SessionOptions, workdir: str) -> None:
        self.name = name
        self.owner = owner
        self.options = options
        self.workdir = workdir
        self.executor: Optional[ExecutorProcess] = None
        self.generation = 0
        self.failure = ""


class Sessions:
    """All sessions of a daemon.

    Args:
        folder: for the sessions' files; emptied of each session when it closes.
        reservation: of the device, taken by every session.
    """

    def __init__(self, folder: str, reservation: DeviceReservation) -> None:
        self._reservation = reservation
        self._folder = folder
        self._sessions: Dict[str, Session] = {}
        self._lock = threading.RLock()
        self._start_requests: queue.Queue[Tuple[Session, threading.Event]] = queue.Queue()
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._count = 0
        self._checked_s = 0.0

    # -- for the threads that serve clients

    def open(
        self,
        owner: Client,
        options: SessionOptions,
        wait_s: float = 0.0,
        present: Callable[[], bool] = lambda: True,
    ) -> Dict[str, Any]:
        """Opens a session and waits for its executor.

        Args:
            owner: the client whose end closes the session.
            options: of the session.
            wait_s: seconds to wait for the device if another client has it.
            present: whether the client is still connected; called while it waits.

        Raises:
            AgentError: another client uses the device, or the executor does not start.
        """
        self._reservation.acquire(owner, wait_s, present)
        with self._lock:
            self._count += 1
            name = "s%d" % self._count
            workdir = os.path.join(self._folder, name)
            session = Session(name, owner, options, workdir)
            self._sessions[name] = session
        try:
            _make_workdir(workdir)
            return self._start(session)
        except (AgentError, OSError):
            self.close(name)
            raise

    def attach(self, name: str) -> Dict[str, Any]:
        """The contact of the session's executor; a dead one is replaced first.

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
        """Whether the executor runs, its memory and processor time, and the reason of its end.

        Args:
            name: of the session.
            wait_s: seconds to wait for its end: a dying process closes its connections before it has ended.
        """
        executor = self.get(name).executor
        until = time.monotonic() + wait_s
        while executor is not None and executor.reason is None and time.monotonic() < until:
            time.sleep(_POLL_S / 5)
        reason = executor.reason if executor else "is not started"
        used = usage(executor.pid) if executor is not None and reason is None else Usage(0, 0.0)
        return {
            "alive": reason is None,
            "reason": reason,
            "resident_bytes": used.resident_bytes,
            "cpu_s": used.cpu_s,
        }

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
            executor.pause(paused)

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
                executor.end("was closed")
        shutil.rmtree(session.workdir, ignore_errors=True)
        self._reservation.release(session.owner)

    def close_owned(self, owner: Client) -> None:
        """Ends all sessions of one client."""
        with self._lock:
            names = [name for name, session in self._sessions.items() if session.owner == owner]
        for name in names:
            self.close(name)

    def close_all(self) -> None:
        """Ends all sessions and their executors."""
        with self._lock:
            names = list(self._sessions)
        for name in names:
            self.close(name)

    def wake(self) -> None:
        """Makes a `poll` that waits return soon."""
        os.write(self._wake_writer, b"x")

    def _start(self, session: Session) -> Dict[str, Any]:
        started = threading.Event()
        self._start_requests.put((session, started))
        self.wake()
        started.wait()
        executor = session.executor
        if executor is None:
            raise AgentError(
                "session_lost",
                "cannot start %s: %s" % (printable(session.options.command[0]), session.failure),
            )
        executor.ready.wait()
        if executor.refusal is not None:
            raise executor.refusal
        if executor.reason is not None:
            raise AgentError(
                "session_lost", "the executor of session %s %s" % (session.name, executor.reason)
            )
        return _contact(session, executor)

    # -- for the main thread

    def poll(self, timeout_s: Optional[float] = None) -> None:
        """Starts requested executors, reads the status of executors, and ends those that exceed a limit.

        Args:
            timeout_s: return after so long even if nothing has happened; None for never.
        """
        for selected, _ in self._selector.select(self._poll_timeout_s(timeout_s)):
            executor: Optional[ExecutorProcess] = selected.data
            if executor is None:
                os.read(self._wake_reader, 4096)
                continue
            with self._lock:
                self._read_status(executor)
        while not self._start_requests.empty():
            self._spawn(*self._start_requests.get())
        if time.monotonic() - self._checked_s >= _POLL_S:
            self._checked_s = time.monotonic()
            self._check_all()

    def _read_status(self, executor: ExecutorProcess) -> None:
        try:
            open_still = executor.read_status()
        except Exception as error:  # noqa: BLE001 - one executor must not end the daemon with all the others
            executor.end("was killed: what it said cannot be taken: %s" % printable(repr(error)))
            open_still = False
        # One that was ended reports nothing more, but a process that it started may still hold the pipe.
        if not open_still or executor.reason is not None:
            self._selector.unregister(executor.status)
            executor.status.close()
            executor.end(None)

    def _poll_timeout_s(self, timeout_s: Optional[float]) -> Optional[float]:
        with self._lock:
            executors = [session.executor for session in self._sessions.values()]
        living = [one for one in executors if one is not None and one.reason is None]
        if any(one.busy for one in living):
            return _POLL_S
        if living:  # whose end shows at once; their memory hardly grows without work
            return _IDLE_POLL_S
        return timeout_s

    def _spawn(self, session: Session, started: threading.Event) -> None:
        try:
            executor = ExecutorProcess(session.options, session.workdir)
        except Exception as error:  # noqa: BLE001 - of one session; the daemon goes on
            session.executor = None
            session.failure = printable(error)
        else:
            with self._lock:
                session.executor = executor
                session.generation += 1
            self._selector.register(executor.status, selectors.EVENT_READ, executor)
        finally:
            started.set()

    def _check_all(self) -> None:
        with self._lock:
            for session in list(self._sessions.values()):
                executor = session.executor
                if executor is None or executor.reason is not None:
                    continue
                broken_limit = None if executor.ended() else executor.broken_limit()
                if broken_limit or executor.ended():
                    executor.end(broken_limit)


def _contact(session: Session, executor: ExecutorProcess) -> Dict[str, Any]:
    return {
        "session": session.name,
        "port": executor.port,
        "key": executor.key,
        "pid": executor.pid,
        "generation": session.generation,
    }


def _make_workdir(workdir: str) -> None:
    for part in ("agent", "rpc", "files"):
        os.makedirs(os.path.join(workdir, part), mode=0o700)
    # Executors of another interpreter find this package, and nothing else of ours, through the link.
    os.symlink(CODE, os.path.join(workdir, "agent", "device_agent"))
