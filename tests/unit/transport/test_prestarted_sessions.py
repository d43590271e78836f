"""Sessions that are opened while the host does other work."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from host.errors import DeviceError, EngineError
from host.transport.device import Device
from host.transport.prestarted_sessions import PrestartedSessions
from host.transport.wire import Connection, DisconnectedError

_PATIENCE_S = 20.0


class Opened:
    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


class Stub:
    """A device whose sessions open when they may."""

    def __init__(self, may_open: bool = True) -> None:
        self.may_open, self.begun = threading.Event(), threading.Event()
        self.opened: list[Opened] = []
        self.asked: list[tuple[str, int, float]] = []
        if may_open:
            self.may_open.set()

    def open_session(self, engine: str, threads: int, time_limit_s: float) -> Opened:
        self.asked.append((engine, threads, time_limit_s))
        self.begun.set()
        assert self.may_open.wait(_PATIENCE_S)
        if engine == "missing":
            raise EngineError("it is not installed")
        if engine == "unreachable":
            raise DeviceError("it went away")
        if engine == "unforeseen":
            raise OSError(9, "Bad file descriptor")
        self.opened.append(Opened(engine))
        return self.opened[-1]


class Agent:
    """An agent that needs to send nothing."""

    def provide(self, engine: str, describe: Callable[[], Any]) -> None:
        pass


class Answering:
    """A connection whose agent opens sessions, the second one when it may."""

    identity = "0"

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.opening, self.may_open = threading.Event(), threading.Event()
        self.patient = True

    def request(self, header: dict[str, Any], **options: Any) -> tuple[dict[str, Any], bytearray]:
        self.commands.append(
            " ".join(header[name] for name in ("command", "engine", "session") if name in header)
        )
        if header["command"] == "session.close":
            return {}, bytearray()
        if header["engine"] == "onnxruntime":
            self.opening.set()
            self.patient = self.may_open.wait(_PATIENCE_S)
        return {"session": f"of-{header['engine']}", "port": 1, "key": "k", "pid": 2}, bytearray()


class Closed:
    """A stream that another thread has closed once a request is sent."""

    def __init__(self) -> None:
        self.sent = b""

    def settimeout(self, seconds: float | None, /) -> None:
        if self.sent:
            raise OSError(9, "Bad file descriptor")

    def sendall(self, data: bytes | bytearray | memoryview, /) -> None:
        self.sent += bytes(data)

    def recv_into(self, buffer: memoryview, /) -> int:
        raise OSError(9, "Bad file descriptor")


def _prestarted(device: Stub, *engines: str) -> PrestartedSessions:
    return PrestartedSessions(cast(Any, device), engines, 2, 7.0)


def _await_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "sessions":
            thread.join(_PATIENCE_S)
            assert not thread.is_alive()


def test_a_session_is_taken_once() -> None:
    device = Stub()
    with _prestarted(device, "tvm", "onnxruntime", "tvm") as prestarted:
        taken = prestarted.take(cast(Any, device), "onnxruntime", 2)
        assert prestarted.take(cast(Any, device), "onnxruntime", 2) is None
    _await_thread()
    assert device.asked == [("tvm", 2, 7.0), ("onnxruntime", 2, 7.0)]
    first, second = device.opened
    assert taken is cast(Any, second) and not second.closed.is_set(), "it is the caller's"
    assert first.closed.is_set()


def test_what_was_not_opened_is_not_taken() -> None:
    device = Stub()
    with _prestarted(device, "tvm", "unreachable") as prestarted:
        assert prestarted.take(cast(Any, device), "unreachable", 2) is None
        assert prestarted.take(cast(Any, device), "openvino", 2) is None
        assert prestarted.take(cast(Any, device), "tvm", 1) is None
        assert prestarted.take(cast(Any, Stub()), "tvm", 2) is None
        assert prestarted.take(cast(Any, device), "tvm", 2) is not None
    _await_thread()


def test_an_engine_that_cannot_be_used_is_not_started_again() -> None:
    device = Stub()
    with _prestarted(device, "missing") as prestarted, pytest.raises(EngineError, match="not installed"):
        prestarted.take(cast(Any, device), "missing", 2)
    _await_thread()


def test_the_end_waits_for_no_session_and_leaves_none() -> None:
    """The device is silent when the command ends, and answers later."""
    device = Stub(may_open=False)
    prestarted = _prestarted(device, "tvm", "onnxruntime")
    assert device.begun.wait(_PATIENCE_S)
    prestarted.close()
    assert not device.opened
    device.may_open.set()
    _await_thread()
    [opened] = device.opened
    assert opened.engine == "tvm" and opened.closed.is_set()


def test_the_end_waits_for_no_device() -> None:
    """One session is open, and its device opens another one, which holds the connection."""
    connection = Answering()
    device = Device("board", cast(Any, connection), False, cast(Any, Agent()))
    with PrestartedSessions(device, ("tvm", "onnxruntime"), 2, 7.0):
        assert connection.opening.wait(_PATIENCE_S)
    assert connection.patient and connection.commands == ["session.open tvm", "session.open onnxruntime"]
    connection.may_open.set()
    _await_thread()
    assert connection.commands[2:] == ["session.close of-tvm", "session.close of-onnxruntime"]


def test_the_process_ends_while_an_engine_is_made() -> None:
    """Such as the native executor, by a compiler."""
    program = """
import threading
from host.transport.prestarted_sessions import PrestartedSessions

class Device:
    begun = threading.Event()
    def open_session(self, *arguments):
        self.begun.set()
        threading.Event().wait()

with PrestartedSessions(Device(), ["tvm"], 1, 1.0):
    Device.begun.wait()
print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_what_fails_in_the_thread_is_not_printed(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    device = Stub(may_open=False)
    with _prestarted(device, "unforeseen"):
        assert device.begun.wait(_PATIENCE_S)
    device.may_open.set()
    _await_thread()
    assert caplog.text == "" and capfd.readouterr().err == ""


def test_a_connection_that_another_thread_closes_is_disconnected() -> None:
    connection = Connection.__new__(Connection)
    connection._socket = cast(Any, Closed())
    with pytest.raises(DisconnectedError, match="Bad file descriptor"):
        connection.request({"command": "session.open"}, silence_s=1.0)
