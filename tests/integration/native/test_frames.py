"""The native executor takes and refuses the same requests as Python's, for errors of the same kind."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from device_agent.contract.limits import LIMITS
from device_agent.contract.measuring import Plan, VariantPlan
from device_agent.errors import AgentError, ClosedError
from device_agent.measure.measurement import variant_plan_of
from device_agent.wire import frames
from tests.fuzz.wire_readers import header_in, read_frame, read_hello, read_plan, read_tensors
from tests.integration.agent.failures.test_hostile import FIRST
from tests.integration.native.mutations import mutated
from tests.integration.native.process import KEY, Executor, read_with

# The first test may wait for the build.
pytestmark = pytest.mark.timeout(900)

Reader = Callable[[bytes], object]
LARGE = LIMITS.wire.blob_bytes
ODD: list[object] = [None, True, 0, -1, 5, 1 << 62, 0.5, 1e300, "", "x", "x\0", "x" * 5000, "\n", "é", [], {}]


def framed(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text


def read_variant_plan(data: bytes) -> None:
    variant_plan_of(header_in(data))


def said(read: Reader, data: bytes) -> str:
    """What Python's reader decides, in the native one's words but for the reason."""
    try:
        read(data)
    except AgentError as error:
        return f"refused {error.kind}"
    except ClosedError:
        return "refused closed"
    return "ok"


def every_frame() -> Iterator[bytes]:
    for command in ("run", "inputs", "load", "measure", "", 5, None, "x" * 100, "x" * 101, "é" * 100):
        for size in (0, 1, 1 << 20, LARGE, LARGE + 1, 1 << 50, -1, 1.0, True, "0", None):
            yield framed({"command": command, "blob_bytes": size})
    for limit in (0, 1, 0.5, LIMITS.wire.seconds, LIMITS.wire.seconds + 1, -1, -0.0, 1e300, *ODD):
        yield framed({"command": "run", "time_limit_s": limit})
    yield from (framed(text) for text in FIRST)
    yield from (
        b"",
        b"\0",
        b"\0\0\0\0",
        b"\0\0\0\1",
        b"\0\0\0\1{}",
        b"\xff\xff\xff\xff",
        framed({}) + b"more",
    )
    yield struct.pack(">I", LIMITS.wire.request_bytes + 1) + b" " * (LIMITS.wire.request_bytes + 1)
    yield struct.pack(">I", LIMITS.wire.request_bytes) + b'{"command":"run"}'.ljust(LIMITS.wire.request_bytes)


def hellos() -> Iterator[bytes]:
    good = {"command": "hello", "schema": frames.SCHEMA, "secret": "s"}
    for name in ("command", "schema", "secret", "client", "identity", "blob_bytes", "other"):
        for value in ODD:
            yield framed({**good, name: value})
    yield from (framed(text) for text in FIRST)
    yield from (framed(good), framed(good)[:-1], framed(good) + b"x", b"", b"\0\0\0", framed(b" " * 4097))
    yield framed(json.dumps(good).encode().ljust(4096))
    yield framed(json.dumps(good).encode().ljust(4097))
    yield framed(json.dumps({**good, "schema": "edgetlm/1\n"}).encode())


def tensors() -> Iterator[bytes]:
    def header(size: object, *described: object) -> bytes:
        return json.dumps({"blob_bytes": size, "tensors": list(described)}).encode()

    for dtype in (*LIMITS.item_bytes, "float8", "int8\n", "Int8", ""):
        for size in (3, 6, 12, 24):
            yield header(size, {"shape": [3], "dtype": dtype})
    dimension, huge = LIMITS.wire.dimension, 1 << 62
    for shape in (
        *(
            [],
            [0],
            [-1, -4],
            [-4],
            [4.0],
            [True, 4],
            ["4"],
            [None],
            [[4]],
            [dimension, 0],
            [dimension + 1, 0],
        ),
        *(
            [huge, huge, 0],
            [0, huge],
            [dimension] * 3 + [0],
            [dimension] * 32,
            [2, 2],
            [1] * 32 + [4],
            [1] * 31 + [4],
        ),
        *(
            [1 << 20, 1 << 20, 1 << 24],
            [1 << 32, 1 << 32],
            [65536, 65536, 4],
            [4] + [1] * 32,
            4,
            "4",
            None,
            {},
        ),
    ):
        for size in (0, 1, 4, 8, LARGE, LARGE + 1, (1 << 63) - 1):
            yield header(size, {"shape": shape, "dtype": "int8"})
    yield header(LARGE, {"shape": [LARGE], "dtype": "int8"})
    yield header(LARGE + 4, {"shape": [LARGE], "dtype": "int8"}, {"shape": [4], "dtype": "int8"})
    yield header(LARGE + 1, {"shape": [LARGE], "dtype": "int8"}, {"shape": [4], "dtype": "int8"})
    yield header(4, *[{"shape": [0], "dtype": "int8"}] * 1023, {"shape": [4], "dtype": "int8"})
    yield header(4, *[{"shape": [0], "dtype": "int8"}] * 1024, {"shape": [4], "dtype": "int8"})
    for value in ODD:
        yield json.dumps({"blob_bytes": 0, "tensors": value}).encode()
        yield json.dumps({"blob_bytes": value, "tensors": []}).encode()
        yield header(4, {"shape": [4], "dtype": value})
        yield header(0, value)
    yield from (header(4, {"shape": [4]}), header(4, {"dtype": "int8"}), header(4, {}), b"{}", b"[]", b"")


def plans_like(plan: Plan | VariantPlan) -> Iterator[bytes]:
    for name, standard in plan._asdict().items():
        limits = (1, LIMITS.wire.runs, LIMITS.wire.runs + 1, LIMITS.wire.seconds, LIMITS.wire.seconds + 1)
        for value in (*ODD, *limits, 1.0, False, standard):
            yield json.dumps({name: value}).encode()
    yield from (b"{}", b'{"other": 1}', b'{"min_repeats": 7, "max_repeats": 6}', b'{"blob_bytes": 0}')
    yield from (b'{"warmup_s": Infinity}', b'{"slowest": 0.999}', b'{"runs": 0}', b'{"max_s": NaN}')


KINDS: dict[str, tuple[Reader, Callable[[], Iterator[bytes]]]] = {
    "frame": (read_frame, every_frame),
    "hello": (read_hello, hellos),
    "tensors": (read_tensors, tensors),
    "plan": (read_plan, partial(plans_like, Plan())),
    "variants": (read_variant_plan, partial(plans_like, VariantPlan())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_both_executors_take_and_refuse_the_same(executable: Path, kind: str) -> None:
    read, crafted = KINDS[kind]
    rng = random.Random(12)
    inputs = list(crafted())
    small = [data for data in inputs if 5 < len(data) < 4000]
    for _ in range(3000):
        data = rng.choice(small)
        # Behind the length, which would otherwise be wrong nearly always.
        whole = kind in ("tensors", "plan", "variants")
        inputs.append(mutated(data, rng) if whole else framed(mutated(data[4:], rng)))
    answers = read_with([str(executable)], kind, inputs)
    expected = [said(read, data) for data in inputs]
    for data, found, wanted in zip(inputs, answers, expected, strict=True):
        assert found.split(":")[0] == wanted, (data[:300], found, wanted)
        assert found.isprintable()
    assert 20 < expected.count("ok") < len(expected) - 100


def test_what_is_no_request_is_answered_and_the_next_client_is_served(
    executable: Path, tmp_path: Path
) -> None:
    with Executor([str(executable)], tmp_path / "session") as running:
        hello = framed({"command": "hello", "schema": frames.SCHEMA, "secret": KEY})
        for text in FIRST:
            with socket.create_connection(("127.0.0.1", running.port), timeout=30) as stranger:
                stranger.sendall(framed(text))
                assert _errors(stranger) in (["bad_request"], ["denied"])
        for text in (
            b'{"command": "run", "blob_bytes": 1000000000000000}',
            b'{"command": "load", "blob_bytes": 1}',
            b'{"command": "run", "time_limit_s": "long"}',
            b'{"command": "run", "time_limit_s": 1e300}',
            b'{"command": "run", "x": "\\ud800"}',
            b"[" * 100_000,
        ):
            with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
                client.sendall(hello + framed(text))
                assert _errors(client) == [None, "bad_request"]
        assert running.ask("load", path="/nowhere")[0]["error"]["kind"] == "bad_request"
        assert running.ask("load", path=5)[0]["error"]["message"].startswith("load: path is 5; text")
        assert running.ask("load")[0]["error"]["message"].startswith("load: path is missing; text")


def _errors(connection: socket.socket) -> list[str | None]:
    """The kinds of the errors that are answered, None for a good answer, until the other end closes."""
    kinds: list[str | None] = []
    while True:
        try:
            reply = frames.receive_header(connection)
        except (ClosedError, ConnectionResetError):
            return kinds
        kinds.append(None if reply["ok"] else reply["error"]["kind"])
