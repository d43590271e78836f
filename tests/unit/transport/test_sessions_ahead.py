"""Sessions that are opened while the host does other work."""

from __future__ import annotations

import threading
from typing import Any, cast

from host.errors import EngineError
from host.transport.sessions_ahead import SessionsAhead

_PATIENCE_S = 60.0


class Opened:
    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


class Device:
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
        self.opened.append(Opened(engine))
        return self.opened[-1]


def _ahead(device: Device, *engines: str) -> SessionsAhead:
    return SessionsAhead(cast(Any, device), engines, 2, 7.0)


def test_a_session_is_taken_once() -> None:
    device = Device()
    with _ahead(device, "tvm", "onnxruntime") as ahead:
        taken = ahead.take(cast(Any, device), "onnxruntime", 2)
        assert ahead.take(cast(Any, device), "onnxruntime", 2) is None
        assert device.asked == [("tvm", 2, 7.0), ("onnxruntime", 2, 7.0)]
    first, second = device.opened
    assert taken is cast(Any, second) and not second.closed.is_set(), "it is the caller's"
    assert first.closed.is_set()


def test_what_was_not_opened_is_not_taken() -> None:
    device = Device()
    with _ahead(device, "tvm", "missing") as ahead:
        assert ahead.take(cast(Any, device), "missing", 2) is None
        assert ahead.take(cast(Any, device), "openvino", 2) is None
        assert ahead.take(cast(Any, device), "tvm", 1) is None
        assert ahead.take(cast(Any, Device()), "tvm", 2) is None
        assert ahead.take(cast(Any, device), "tvm", 2) is not None


def test_the_end_waits_for_no_device_and_leaves_no_session() -> None:
    """The device is silent when the command ends, and answers later."""
    device = Device(may_open=False)
    ahead = _ahead(device, "tvm", "onnxruntime")
    assert device.begun.wait(_PATIENCE_S)
    ahead.close()
    assert not device.opened
    device.may_open.set()
    for thread in threading.enumerate():
        if thread.name.startswith("sessions"):
            thread.join(_PATIENCE_S)
    [opened] = device.opened
    assert opened.engine == "tvm" and opened.closed.is_set()
