"""Frames between host and agent, both halves of the protocol."""

from __future__ import annotations

import json
import socket
import struct
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.contract.limits import LIMITS
from device_agent.contract.tensors import numpy_type
from device_agent.errors import AgentError, ClosedError
from device_agent.wire import frames
from host.errors import (
    BundleError,
    DeviceBusy,
    DeviceError,
    DeviceFull,
    EngineError,
    MeasureError,
    SessionLost,
)
from host.transport import wire as host_wire


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def test_both_halves_speak_one_version():
    assert frames.SCHEMA == host_wire.SCHEMA


def test_a_frame_comes_through_whole(pair):
    left, right = pair
    blobs = [b"abc", bytearray(b""), memoryview(np.arange(3, dtype="int64"))]
    threading.Thread(target=frames.send, args=(left, {"command": "x", "n": 1}, blobs)).start()
    header = frames.receive_header(right)
    assert header == {"command": "x", "n": 1, "blob_bytes": 27}
    assert frames.receive_exact(right, 27) == b"abc" + np.arange(3, dtype="int64").tobytes()


def test_a_connection_that_ends_early_is_told_apart(pair):
    left, right = pair
    left.sendall(struct.pack(">I", 100) + b"{")
    left.close()
    with pytest.raises(ClosedError):
        frames.receive_header(right)


@pytest.mark.parametrize("content", [b"not json", b"[1]", b'{"blob_bytes": "x"}'])
def test_what_is_no_frame_is_refused(pair, content):
    left, right = pair
    left.sendall(struct.pack(">I", len(content)) + content)
    with pytest.raises(AgentError) as caught:
        frames.receive_header(right)
    assert caught.value.kind == "bad_request"


def test_an_absurd_length_is_refused_before_memory_is_taken(pair):
    left, right = pair
    left.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(AgentError, match="frame header of 4294967295 bytes"):
        frames.receive_header(right)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(sorted(frames.ITEM_BYTES))),
        max_size=4,
    )
)
def test_tensors_survive_host_to_agent_and_back(specs):
    generator = np.random.default_rng(0)
    arrays = [
        generator.integers(0, 2, (*shape, frames.ITEM_BYTES[dtype]))
        .astype("uint8")
        .view(_numpy(dtype))[..., 0]
        for shape, dtype in specs
    ]
    descriptions, blobs = host_wire.pack(arrays)
    sent = frames.split_tensors(descriptions, b"".join(bytes(blob) for blob in blobs))
    assert [(t.shape, t.dtype) for t in sent] == [(tuple(s), d) for s, d in specs]
    returned = host_wire.unpack(
        frames.describe_tensors(sent), bytearray(b"".join(bytes(t.data) for t in sent))
    )
    for before, after in zip(arrays, returned, strict=True):
        assert before.dtype == after.dtype and before.shape == after.shape
        assert before.tobytes() == after.tobytes()


def _numpy(name):
    return numpy_type(name)


def test_a_blob_of_another_length_is_refused_on_both_sides():
    descriptions = [{"shape": [2], "dtype": "float32"}]
    with pytest.raises(AgentError, match="8 bytes in a blob of 9"):
        frames.split_tensors(descriptions, bytes(9))
    with pytest.raises(DeviceError, match="8 bytes in a blob of 9"):
        host_wire.unpack(descriptions, bytearray(9))


@pytest.mark.parametrize(
    "tensors",
    [
        None,
        5,
        {},
        [5],
        [{}],
        [{"shape": [1], "dtype": 5}],
        [{"shape": 4, "dtype": "int8"}],
        [{"shape": [-1, -4], "dtype": "int8"}],
        [{"shape": [-4], "dtype": "int8"}],
        [{"shape": [4.0], "dtype": "int8"}],
        [{"shape": [True, 4], "dtype": "int8"}],
        [{"shape": ["4"], "dtype": "int8"}],
        [{"shape": [1 << 62, 4], "dtype": "int8"}],
        [{"shape": [1 << 41, 0], "dtype": "int8"}, {"shape": [4], "dtype": "int8"}],
        [{"shape": [1] * 33 + [4], "dtype": "int8"}],
        [{"shape": [0], "dtype": "int8"}] * 1024 + [{"shape": [4], "dtype": "int8"}],
        [{"shape": [4], "dtype": "int8\n"}],
    ],
)
def test_what_describes_no_tensors_of_a_blob_is_refused_on_both_sides(tensors):
    with pytest.raises(AgentError) as caught:
        frames.split_tensors(tensors, bytes(4))
    assert caught.value.kind == "bad_request" and str(caught.value).isprintable()
    with pytest.raises(DeviceError):
        host_wire.unpack(tensors, bytearray(4))


@pytest.mark.parametrize("announced", [1 << 50, (1 << 20) + 1, -1, True, 1.0, "5", None])
def test_a_blob_that_may_not_come_is_refused_before_memory_is_taken(pair, announced):
    left, right = pair
    text = json.dumps({"command": "run", "blob_bytes": announced}).encode()
    left.sendall(struct.pack(">I", len(text)) + text)
    with pytest.raises(AgentError) as caught:
        frames.blob_bytes(frames.receive_header(right), 1 << 20)
    assert caught.value.kind == "bad_request"


def test_memory_is_taken_as_bytes_come(pair):
    """A peer that announces a gigabyte and sends little has taken little."""
    left, right = pair
    left.sendall(b"x" * 1000)
    left.shutdown(socket.SHUT_WR)
    tracemalloc.start()
    with pytest.raises(ClosedError, match="after 1000 of 1073741824 bytes"):
        frames.receive_exact(right, 1 << 30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_header_that_is_longer_than_its_limit_is_refused(pair):
    left, right = pair
    left.sendall(struct.pack(">I", LIMITS.wire.request_bytes + 1))
    with pytest.raises(AgentError, match="is not of protocol"):
        frames.receive_header(right)


def test_an_answer_that_nobody_takes_is_replaced_by_an_error(pair):
    left, right = pair
    header = {"ok": True, "text": "x" * LIMITS.wire.header_bytes}
    frames.send(left, header, [b"1234"])
    reply = frames.receive_header(right)
    assert not reply["ok"] and "ask for less" in reply["error"]["message"] and reply["blob_bytes"] == 0


def test_an_unknown_dtype_is_refused():
    with pytest.raises(AgentError, match="float8 cannot be sent"):
        frames.tensor_bytes((2,), "float8")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("device_full", DeviceFull),
        ("bundle", BundleError),
        ("engine", EngineError),
        ("measure", MeasureError),
        ("session_lost", SessionLost),
        ("no_session", SessionLost),
        ("busy", DeviceBusy),
        ("denied", DeviceError),
        ("something new", DeviceError),
    ],
)
def test_every_error_of_the_agent_becomes_one_of_the_host(kind, expected):
    port, thread = _serve_once([{"ok": True}, frames.error_reply(AgentError(kind, "it\n broke"))])
    connection = host_wire.Connection(port, "secret", "board")
    with pytest.raises(expected, match=r"^board: it broke$") as caught:
        connection.request({"command": "x"})
    assert type(caught.value) is expected
    connection.close()
    thread.join()


def test_a_refused_secret_says_so():
    port, thread = _serve_once([frames.error_reply(AgentError("denied", "wrong secret"))])
    with pytest.raises(DeviceError, match="wrong secret"):
        host_wire.Connection(port, "x", "board")
    thread.join()


def test_nobody_listening_says_so():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DeviceError, match="does not answer on port"):
        host_wire.Connection(port, "x", "board")


def _serve_once(replies):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with listener:
            connection, _ = listener.accept()
        with connection:
            for reply in replies:
                frames.receive_header(connection)
                text = json.dumps(reply).encode()
                connection.sendall(struct.pack(">I", len(text)) + text)

    thread = threading.Thread(target=serve)
    thread.start()
    return listener.getsockname()[1], thread
