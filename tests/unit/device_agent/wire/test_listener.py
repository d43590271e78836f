"""Who a listener reads from, admits and drops."""

from __future__ import annotations

import json
import queue
import socket
import struct
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from device_agent.contract.limits import LIMITS
from device_agent.errors import AgentError
from device_agent.wire import frames
from device_agent.wire import listener as listener_module
from device_agent.wire.listener import Listener, refuse


@pytest.fixture
def admitted():
    return queue.Queue()


@pytest.fixture
def listener(admitted):
    """A listener that admits whoever sends a frame; a frame "fail" fails, "bye" is refused."""

    def admit(connection, data):
        if data.endswith(b"fail"):
            raise OSError("it went away at this moment")
        if data.endswith(b"bye"):
            refuse(connection, [b"no"])
            return
        kept.append(connection)
        admitted.put((connection, data))

    kept = []
    listener = Listener(frames.hello_missing, admit)
    listener.open()
    yield listener
    listener.close()
    for connection in kept:
        connection.close()


def connect(listener, data=b""):
    connection = socket.create_connection(("127.0.0.1", listener.port), timeout=60)
    connection.sendall(data)
    return connection


def frame(text):
    return struct.pack(">I", len(text)) + text


def test_nothing_of_what_follows_is_read(listener, admitted):
    with connect(listener, frame(b"hello") + b"next") as client:
        connection, data = admitted.get(timeout=60)
        assert data == frame(b"hello")
        connection.setblocking(True)
        assert connection.recv(10) == b"next"
        connection.sendall(b"in")
        assert client.recv(10) == b"in"
        connection.close()


def test_a_request_may_come_in_pieces(listener, admitted):
    with connect(listener) as client:
        for byte in frame(b"slowly"):
            client.sendall(bytes([byte]))
        connection, data = admitted.get(timeout=60)
        assert data == frame(b"slowly")
        connection.close()


def test_the_silent_are_dropped_in_time_however_often_they_say_a_little(admitted, monkeypatch):
    monkeypatch.setattr(listener_module, "_LIMITS", LIMITS.wire._replace(hello_s=0.5))
    listener = Listener(frames.hello_missing, lambda *_: admitted.put(None))
    listener.open()
    with connect(listener) as silent, connect(listener) as slow:
        stop = threading.Event()

        def trickle():
            with pytest.raises(OSError):
                slow.sendall(struct.pack(">I", 4000))
                while not stop.wait(0.05):
                    slow.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        assert silent.recv(1) == b""
        thread.join(60)
        assert not thread.is_alive()
        stop.set()
    assert admitted.empty()
    listener.close()


def test_the_longest_silent_make_room(listener, admitted):
    crowd = [connect(listener, b"\0") for _ in range(LIMITS.wire.pending_connections + 3)]
    for early in crowd[:3]:
        assert early.recv(1) == b""
    with connect(listener, frame(b"late")):
        assert admitted.get(timeout=60)[1] == frame(b"late")
    crowd[-1].sendall(frame(b"patient")[1:])
    assert admitted.get(timeout=60)[1] == frame(b"patient")
    for one in crowd:
        one.close()


def test_who_fails_at_the_door_leaves_it_open(listener, admitted):
    with connect(listener, frame(b"fail")) as failing, connect(listener, frame(b"bye")) as refused:
        assert failing.recv(1) == b""
        assert refused.recv(10) == b"no"
    with connect(listener, frame(b"hello")):
        assert admitted.get(timeout=60)


def test_an_error_of_ours_at_the_door_drops_one_connection_and_is_noted(admitted):
    notes = []

    def admit(connection, data):
        if data.endswith(b"odd"):
            raise UnicodeError("nobody thought of \x1b this")
        admitted.put(data)
        connection.close()

    listener = Listener(frames.hello_missing, admit, log=notes.append)
    listener.open()
    with connect(listener, frame(b"odd")) as odd, connect(listener, frame(b"hello")):
        assert odd.recv(1) == b""
        assert admitted.get(timeout=60) == frame(b"hello")
    listener.close()
    assert len(notes) == 1 and "UnicodeError" in notes[0]


def test_a_door_that_cannot_go_on_says_so(monkeypatch):
    reasons = queue.Queue()

    def fail(self, pending):
        raise SystemError("no\nmore")

    monkeypatch.setattr(Listener, "_receive", fail)
    listener = Listener(frames.hello_missing, lambda *_: None, failed=reasons.put)
    listener.open()
    with connect(listener, b"x"):
        assert reasons.get(timeout=60) == r"the listener failed: SystemError('no\nmore')"
    listener.close()


def test_a_door_that_nobody_looks_after_ends_the_process():
    program = (
        "import time\n"
        "from device_agent.wire.listener import Listener\n"
        "def fail(data): raise SystemError('no more')\n"
        "listener = Listener(fail, lambda *_: None)\n"
        "listener.open()\n"
        "print(listener.port, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"x")
            code = process.wait(60)
        said = process.stderr.read().decode()
    assert code == 1 and "the listener failed" in said and "the process ends" in said


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_whatever_is_sent_the_next_one_is_heard(listener, admitted, data):
    with connect(listener, data), connect(listener, frame(b"hello")):
        while admitted.get(timeout=60)[1] != frame(b"hello"):
            pass


@given(st.binary(max_size=300))
def test_no_first_request_is_more_than_a_refusal(data):
    """Whatever the bytes: the sender is let in by the secret alone."""

    def admit(secret):
        if secret != "s":
            raise AgentError("denied", "wrong secret")

    whole = data[: max(0, len(data) + min(0, frames.hello_missing(data)))]
    if frames.hello_missing(whole) == 0 and len(whole) >= 4:
        with pytest.raises(AgentError):
            frames.check_hello(whole, admit)
    good = frame(json.dumps({"command": "hello", "schema": frames.SCHEMA, "secret": "s"}).encode())
    assert frames.check_hello(good, admit)["secret"] == "s"
