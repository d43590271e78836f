"""An agent that answers anything: the host gets one of its own errors, and takes no more memory than came."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from host.compare.power_modes import list_modes
from host.errors import DeviceError, EdgeError
from host.keys import HostKey
from host.model import Start
from host.transport.agent import OnThisMachine
from host.transport.device import Device
from host.transport.session import Session
from host.transport.wire import Connection, DisconnectedError

KEY = HostKey("ada@attic", "0" * 64, lambda message: bytes(64))
CONTACT = {"ok": True, "session": "s1", "port": 1, "key": "k", "pid": 5, "generation": 1}


class HostileAgent(OnThisMachine):
    """Lets everybody in and answers every request with the same bytes."""

    def __init__(self) -> None:
        self.answer = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            thread.start()
            self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                for answer in self._answers():
                    (length,) = struct.unpack(">I", _exactly(connection, 4))
                    header = json.loads(_exactly(connection, length))
                    _exactly(connection, header["blob_bytes"])
                    connection.sendall(answer())
                    if header["command"] != "hello":
                        connection.shutdown(socket.SHUT_WR)
            except (OSError, EOFError):
                return  # the host went away

    def _answers(self) -> Iterator[Callable[[], bytes]]:
        yield lambda: frame({"ok": True})
        while True:
            yield lambda: self.answer

    def end_reason(self) -> str:
        return ""

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def frame(header: object, blob: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + blob


@pytest.fixture
def agent() -> Iterator[HostileAgent]:
    agent = HostileAgent()
    yield agent
    agent.stop()


def session_on(device: Device) -> Session:
    return Session(device, "tvm", 1, CONTACT, 60.0)


def worker(device: Device, agent: HostileAgent) -> Session:
    """A session whose executor is the hostile agent too."""
    session = session_on(device)
    session._connection = Connection(agent.port, "k", "board (tvm)")
    return session


DEVICE: dict[str, Callable[[Device], object]] = {
    "describe": lambda device: device.describe(),
    "state": lambda device: device.state(),
    "sensor": lambda device: device.sensor(),
    "open": lambda device: device.open_session("tvm", python="/usr/bin/python3"),
    "bundles": lambda device: device.bundles(),
    "path": lambda device: device.bundle_path("x"),
    "rollback": lambda device: device.rollback("x"),
    "remove": lambda device: device.remove("x"),
    "modes": lambda device: list_modes(device),
    "keys": lambda device: device.keys(),
    "enrol": lambda device: device.enrol(KEY),
    "revoke": lambda device: device.revoke("x"),
    "reserve": lambda device: device.reserve(),
    "attach": lambda device: session_on(device)._connect(),
    "lost": lambda device: session_on(device).lost_reason(),
    "pause": lambda device: session_on(device).pause(),
}
SESSION: dict[str, Callable[[Session], object]] = {
    "run": lambda session: session.run([np.zeros(3, "float32")]),
    "measure": lambda session: session.measure(energy=False),
    "profile": lambda session: session.profile(),
    "intermediates": lambda session: list(session.intermediates()),
    "load": lambda session: session.load(Path(__file__)),
}
ODD: list[object] = [None, True, 0, -1, 1 << 62, 0.5, "", "\x1b[31m\n", [], [[]], [None], {}, {"a": {}}]
FIELDS = sorted(
    {"keys", "revoked", "trusted", "warning", "load_s", "first_run_s"}
    | {"machine", "cpu_name", "cores", "features", "cache_bytes", "frequency_hz", "memory_bytes", "software"}
    | {"system"}
    | {"time_s", "clocks_hz", "load_1min", "governors", "temperatures_c", "throttle", "limits_hz", "devfreq"}
    | {"source", "rails", "unavailable", "session", "port", "key", "pid", "bundles", "path", "version"}
    | {"modes", "reason", "tensors", "times_s", "energy", "state_before", "state_after", "threads", "kernels"}
    | {"calls", "complete", "signature", "throttled", "throttle_reasons", "conditions", "invalid", "has"}
)
KNOWN: dict[str, object] = {
    "ok": True,
    "machine": "x",
    "cpu_name": "x",
    "cores": 1,
    "features": [],
    "cache_bytes": {"L1": 1},
    "frequency_hz": 1.0,
    "memory_bytes": 1,
    "software": {"a": "b"},
    "system": {"kernel": "6"},
    "time_s": 1.0,
    "session": "s1",
    "port": 1,
    "key": "k",
    "pid": 5,
    "bundles": [{"name": "x", "version": "y"}],
    "path": "/x",
    "version": "v",
    "modes": [{"name": "m"}],
    "times_s": [0.1],
    "state_before": {},
    "state_after": {},
    "threads": 1,
    "kernels": [{"name": "k"}],
    "calls": [{"index": 0}],
    "complete": False,
    "has": True,
    "load_s": 0.5,
    "first_run_s": 0.25,
    "signature": {"inputs": [{"shape": [1]}]},
    "energy": {"trace": [[0, 1, None]]},
}


@pytest.mark.parametrize("name", [*DEVICE, *SESSION])
def test_a_wrong_type_in_any_field_is_an_error_of_the_host(agent: HostileAgent, name: str) -> None:
    for field in FIELDS:
        for value in ODD:
            _ask(agent, name, frame({**KNOWN, field: value}))


def test_the_time_to_the_first_output_is_known_once_a_loaded_model_has_run(agent: HostileAgent) -> None:
    tensors = {"tensors": [{"shape": [1], "dtype": "uint8"}], "blob_bytes": 1}
    connection = Connection(agent.port, "secret", "board")
    session = session_on(Device("board", connection, True, agent))
    try:
        for asked, found in ((dict(KNOWN), Start(0.5, 0.25)), ({"ok": True, "signature": None}, None)):
            for name, answer in (("load", frame(asked)), ("run", frame({**asked, **tensors}, b"x"))):
                # The agent answers once on a connection.
                agent.answer, session._connection = answer, Connection(agent.port, "k", "board (tvm)")
                SESSION[name](session)
                session._disconnect()
                assert session.start == (found if name == "run" else None)
    finally:
        session._disconnect()
        connection.close()


def _ask(agent: HostileAgent, name: str, answer: bytes) -> EdgeError | None:
    """Asks once; any error that is none of the host's own gets through to the test."""
    agent.answer = answer
    connection = Connection(agent.port, "secret", "board")
    device = Device("board", connection, True, agent)
    device._closed = False
    session = None
    try:
        if name in DEVICE:
            DEVICE[name](device)
        else:
            session = worker(device, agent)
            session._sensed = False
            SESSION[name](session)
    except EdgeError as error:
        assert str(error).isprintable(), repr(str(error))
        return error
    finally:
        if session is not None:
            session._disconnect()
        connection.close()
    return None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0\0",
        struct.pack(">I", 0),
        struct.pack(">I", 1 << 31),
        frame(b"[" * 100_000 + b"]" * 100_000),
        frame(b'{"ok": true, "x": ' + b"[" * 1000 + b"]" * 1000 + b"}"),
        frame(b'{"ok": true, "time_s": NaN}'),
        frame(b'{"ok": true, "time_s": 1e999}'),
        frame(b'{"ok": true, "ok": false}'),
        frame(b'{"ok": true, "x": "\\ud800"}'),
        frame(b"\xff"),
        frame([]),
        frame(5),
        frame({}),
        frame({"ok": 1}),
        frame({"ok": "true"}),
        frame({"ok": False}),
        frame({"ok": False, "error": "x"}),
        frame({"ok": False, "error": {"kind": 5, "message": "x"}}),
        frame({"ok": False, "error": {"kind": "engine", "message": ["x"]}}),
        frame({"ok": False, "error": {"kind": "engine", "message": "\x1b[31m\nred\u202e"}}),
        frame({"ok": True, "blob_bytes": 1 << 50}),
        frame({"ok": True, "blob_bytes": -1}),
        frame({"ok": True, "blob_bytes": "1"}),
        frame({"ok": True, "blob_bytes": 8, "tensors": [{"shape": [1 << 47], "dtype": "float64"}]}),
        frame({"ok": True, "blob_bytes": 1 << 33, "tensors": [{"shape": [1 << 30], "dtype": "float64"}]}),
        frame({"ok": True, "blob_bytes": 0, "tensors": [{"shape": [1 << 40] * 3 + [0], "dtype": "int8"}]}),
        frame({"ok": True, "blob_bytes": 4, "tensors": [{"shape": [-2, -2], "dtype": "int8"}]}, b"1234"),
        frame({"ok": True, "blob_bytes": 4, "tensors": [{"shape": [4], "dtype": "object"}]}, b"1234"),
    ],
)
@pytest.mark.parametrize("name", ["describe", "run", "measure", "intermediates"])
def test_an_answer_that_is_none_is_an_error_of_the_host(
    agent: HostileAgent, name: str, answer: bytes
) -> None:
    tracemalloc.start()
    assert _ask(agent, name, answer) is not None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*DEVICE, *SESSION]), st.dictionaries(st.sampled_from(FIELDS), values, max_size=6))
def test_whatever_is_answered_the_host_raises_its_own_errors_only(
    agent: HostileAgent, name: str, fields: dict[str, Any]
) -> None:
    _ask(agent, name, frame({**KNOWN, **fields}))


def test_an_answer_of_millions_of_values_is_refused_before_it_takes_their_memory(agent: HostileAgent) -> None:
    answer = frame(b'{"ok": true, "x": [' + b"{}," * 10_000_000 + b"{}]}")
    tracemalloc.start()
    error = _ask(agent, "describe", answer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "more than 2000000 values" in str(error) and peak < 4 * len(answer)


def test_the_error_names_the_device_and_the_field(agent: HostileAgent) -> None:
    error = _ask(agent, "describe", frame({**KNOWN, "cores": "many"}))
    assert isinstance(error, DeviceError)
    assert str(error).startswith("board: its agent sent a wrong answer: cores is 'many'; a whole number")


def test_what_an_agent_says_is_shown_in_one_printable_line(agent: HostileAgent) -> None:
    told = {"kind": "engine", "message": "no\n\x1b[31mred \u202egnp.exe"}
    error = _ask(agent, "describe", frame({"ok": False, "error": told}))
    assert str(error) == r"board: no \x1b[31mred \u202egnp.exe"


def test_a_refusal_in_the_middle_of_an_upload_is_told() -> None:
    """An agent that takes no more of a file says why before it closes; the host reads that."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(frame({"ok": True}))
            connection.recv(100)
            told = {"kind": "device_full", "message": "no space left"}
            connection.sendall(frame({"ok": False, "error": told}))
            connection.shutdown(socket.SHUT_RDWR)

    thread = threading.Thread(target=serve)
    thread.start()
    connection = Connection(listener.getsockname()[1], "secret", "board")
    with pytest.raises(EdgeError, match="board: no space left"):
        connection.request({"command": "file.put"}, [bytes(64 << 20)])
    connection.close()
    with pytest.raises(DisconnectedError):
        connection.request({"command": "describe"})
    thread.join()
    listener.close()


@contextlib.contextmanager
def silent_after(*answers: dict[str, object]) -> Iterator[Device]:
    """A device whose agent answers so many requests, and then neither says nor takes anything."""
    listener = socket.create_server(("127.0.0.1", 0))
    connected: list[socket.socket] = []

    def serve() -> None:
        connection, _ = listener.accept()
        connected.append(connection)
        for answer in ({"ok": True}, *answers):
            (length,) = struct.unpack(">I", _exactly(connection, 4))
            _exactly(connection, length)
            connection.sendall(frame(answer))

    thread = threading.Thread(target=serve)
    thread.start()
    device = Device("board", Connection(listener.getsockname()[1], "k", "board"), True, HostileAgent())
    try:
        yield device
    finally:
        device.close()
        thread.join(60)
        connected[0].close()
        listener.close()


def test_an_agent_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("host.transport.device.SILENCE_S", 0.2)
    with (
        silent_after() as device,
        pytest.raises(DeviceError, match=r"board: the device agent went away \(it does not answer\)"),
    ):
        device.request("describe")


@pytest.mark.parametrize(
    ("megabytes", "reason"), [(64, "it takes nothing any more"), (0, "it does not answer")]
)
def test_an_agent_that_takes_no_more_of_a_file_is_not_waited_for_for_ever(
    megabytes: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose card hangs, amid an upload or behind it."""
    monkeypatch.setattr("host.transport.wire.SILENCE_S", 0.2)
    monkeypatch.setattr("host.transport.wire._LAST_ANSWER_S", 0.1)
    (tmp_path / "params.bin").write_bytes(bytes(megabytes << 20))
    with (
        silent_after({"ok": True, "has": False}) as device,
        pytest.raises(DeviceError, match=rf"board: the device agent went away \({reason}\)"),
    ):
        device.upload(tmp_path / "params.bin")


def test_an_executor_that_takes_no_more_of_its_inputs_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("host.transport.wire._LAST_ANSWER_S", 0.1)
    with silent_after() as device, pytest.raises(DisconnectedError, match="it takes nothing any more"):
        device._connection.request({"command": "inputs"}, [bytes(64 << 20)], silence_s=0.2)
