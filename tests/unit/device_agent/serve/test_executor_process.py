"""What executors say through their status pipe: a model's code can write there, so it may be anything."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from device_agent.contract.limits import LIMITS
from device_agent.errors import AgentError
from device_agent.serve.executor_process import SessionOptions
from device_agent.serve.reservation import Client, DeviceReservation
from device_agent.serve.sessions import Sessions

OWNER = Client(1, "ada@attic")
# Says where it listens, and what a test wants to be said when there is a file `go`.
ANNOUNCE = """
import os, time
os.write(1, b'{"port": 5}\\n')
while not os.path.exists(%r):
    time.sleep(0.01)
"""


def sessions_of(folder):
    return Sessions(str(folder), DeviceReservation())


def terms(program):
    return SessionOptions("tvm", 1, 60.0, 0, [sys.executable, "-c", program], "", [], "")


class Watched:
    """Sessions whose poll runs in a thread, as the daemon's main thread does."""

    def __init__(self, folder):
        self.sessions = sessions_of(folder)
        self.failure = True
        self._done = False
        self._thread = threading.Thread(target=self._poll)

    def _poll(self):
        try:
            while not self._done:
                self.sessions.poll(0.05)
            self.failure = False
        finally:
            self._done = True

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.sessions.close_all()
        # The pipes of all executors are closed by the poll that hears of their end.
        while not self._done and len(self.sessions._selector.get_map()) > 1:
            time.sleep(0.01)
        self._done = True
        self.sessions.wake()
        self._thread.join()
        assert not self.failure


@pytest.fixture
def watched(tmp_path):
    with Watched(tmp_path) as running:
        yield running


def reason_of(watched, folder, program):
    """Opens a session, has its executor say what it is to say, and waits for its end."""
    sessions, go = watched.sessions, folder / "go"
    name = sessions.open(OWNER, terms(ANNOUNCE % str(go) + program))["session"]
    go.touch()
    until = time.monotonic() + 60
    while (reason := sessions.status(name)["reason"]) is None and time.monotonic() < until:
        time.sleep(0.01)
    go.unlink()
    # The session goes on with a new executor, as after any other end of it.
    assert sessions.attach(name)["generation"] == 2
    return reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\nB x\n", "a status that is none"),
        (b"B frames\n", "a status that is none: B frames"),
        (b"B frames nan\n", "a status that is none: B frames nan"),
        (b"B frames 1e400\n", "a time limit of inf s"),
        (b"B frames -1\n", "a status that is none"),
        (b"B other 1\n", "a status that is none: B other 1"),
        (b"I\n", "a status that is none: I"),
        (b"I other\n", "a status that is none: I other"),
        (b"B frames 1.2.3\n", "could not convert"),
        (b"\xff\xfe\x1b[31m\n", r"\xff\xfe\x1b[31m"),
        (b"x" * (LIMITS.wire.status_line_bytes + 1), "a line of status of more than"),
        (b"x" * LIMITS.wire.status_line_bytes * 2 + b"\n", "a line of status of more than"),
    ],
)
def test_a_line_that_is_none_ends_the_executor_and_not_the_daemon(watched, tmp_path, said, reason):
    found = reason_of(watched, tmp_path, f"os.write(1, {said!r})\ntime.sleep(600)\n")
    assert found.startswith("was killed: its executor sent ") and reason in found, found
    assert found.isprintable()


def test_a_flood_ends_the_executor(watched, tmp_path):
    flood = "while True: os.write(1, b'B frames 1\\nI frames\\n' * 1000)\n"
    assert "bytes of status in a second" in reason_of(watched, tmp_path, flood)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"[]", b"5", b"{}", b"\xff", b"[" * 5000),
        *(b'{"port": "5"}', b'{"port": 0}', b'{"port": 65536}', b'{"port": true}', b'{"port": NaN}'),
        *(b'{"error": "x"}', b'{"error": {"kind": 5, "message": "x"}}'),
        b'{"error": {"kind": "engine", "message": "\\ud800"}}',
    ],
)
def test_a_first_line_that_is_none_is_told_to_who_opens_the_session(watched, line):
    program = f"import os, time\nos.write(1, {line!r} + b'\\n')\ntime.sleep(600)\n"
    with pytest.raises(AgentError, match="was killed: its executor sent a first line") as caught:
        watched.sessions.open(OWNER, terms(program))
    assert caught.value.kind == "session_lost"


def test_a_refusal_is_told_in_one_printable_line(watched):
    line = b'{"error": {"kind": "engine", "message": "no\\u001b[31m\\nengine"}}\n'
    program = f"import os\nos.write(1, {line!r})\n"
    with pytest.raises(AgentError, match=r"^no\\x1b\[31m engine$") as caught:
        watched.sessions.open(OWNER, terms(program))
    assert caught.value.kind == "engine"


def test_work_and_rest_are_heard(watched, tmp_path):
    program = "os.write(1, b'B frames 0\\nB rpc 2.5\\nI rpc\\nI frames\\nB rpc 0.2\\n')\ntime.sleep(600)\n"
    assert reason_of(watched, tmp_path, program) == "was killed: it worked for longer than its limit of 0.2 s"


def test_a_command_that_cannot_be_started_ends_nothing(watched, tmp_path):
    for command in ("/nowhere/python", "nul\0in it"):
        wrong = SessionOptions("tvm", 1, 60.0, 0, [command], "", [], "")
        with pytest.raises(AgentError, match="cannot start"):
            watched.sessions.open(OWNER, wrong)
    contact = watched.sessions.open(OWNER, terms(ANNOUNCE % str(tmp_path / "go")))
    assert watched.sessions.status(contact["session"])["alive"]


@pytest.mark.parametrize(
    ("threads", "usable", "cores", "bound"),
    [(4, {0, 1, 2, 3}, 4, "1"), (2, {0, 1, 2, 3}, 4, "0"), (2, {2, 3}, 4, "0"), (8, {0, 1, 2, 3}, 4, "0")],
)
def test_workers_are_bound_where_they_take_all_cores(watched, monkeypatch, threads, usable, cores, bound):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: usable)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    program = 'import os\nvalue = os.environ["TVM_BIND_THREADS"]\n'
    program += 'print(\'{"error": {"kind": "engine", "message": "bound %s"}}\' % value)\n'
    with pytest.raises(AgentError, match=f"^bound {bound}$"):
        watched.sessions.open(OWNER, terms(program)._replace(threads=threads))
