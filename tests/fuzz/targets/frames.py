"""Frames of the wire: both executors' readers of what a host sends, the host's of what is answered."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from device_agent.contract import strict_json
from device_agent.contract.fields import Fields
from device_agent.contract.tensors import tensor_sizes
from device_agent.errors import AgentError, ClosedError
from device_agent.execute import executor
from device_agent.measure.measurement import plan_of
from device_agent.wire import frames
from host.errors import EdgeError
from host.transport import replies
from host.transport.wire import Connection, DisconnectedError, unpack
from tests.fuzz.case import Case, Outcome, complaint
from tests.fuzz.corpus import frames as found
from tests.fuzz.mutate import grown, mangled, written
from tests.fuzz.targets.native import NativeReader, Verdict, disagreement

KINDS = ("frame", "hello", "tensors", "plan", "json")
_ANSWER = "answer"
_HELD = 1 << 62


class Received:
    """A connection that holds some bytes and then ends; what is sent is thrown away."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def recv_into(self, buffer: memoryview) -> int:
        """What there is."""
        part, self._data = self._data[: len(buffer)], self._data[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def settimeout(self, seconds: float | None) -> None:
        """Nothing here waits."""

    def sendall(self, data: object) -> None:
        """Thrown away."""

    def close(self) -> None:
        """Nothing to close."""


class Frames:
    """The target: the first file's name is the kind of the case."""

    name = "frames"
    apart = False

    def __init__(self) -> None:
        self._native = {kind: NativeReader(kind) for kind in KINDS}

    def open(self, place: object) -> None:
        """Nothing is needed."""

    def close(self) -> None:
        """End the readers."""
        for reader in self._native.values():
            reader.close()

    def corpus(self) -> list[Case]:
        """Everything that was a fault once."""
        return found.cases()

    def case(self, seed: int) -> Case:
        """What one side or the other sends."""
        rng = Random(f"frames/{seed}")
        kind = rng.choice((*KINDS, _ANSWER))
        header = _header(rng, rng.choice(found.HEADERS[kind]))
        if kind == "hello":
            header = _framed(rng, header)
        elif kind == "frame":
            header = _framed(rng, header) + rng.randbytes(rng.choice((0, 0, 5)))
        elif kind == _ANSWER:
            parts = [_framed(rng, json.dumps({"ok": True}).encode()) if rng.random() < 0.9 else b""]
            header = b"".join((*parts, _framed(rng, header), rng.randbytes(rng.choice((0, 12, 48, 100)))))
        return Case(f"{kind}-{seed}", {kind: header})

    def run(self, case: Case) -> Outcome:
        """Both readers decide the same; the host ends in an error of its own."""
        (kind,) = case.files
        if kind == _ANSWER:
            return _answered(case.main)
        verdict = _python(kind, case.main)
        native = self._native[kind].read(case.main)
        wrong = disagreement(verdict, native) or _other_kind(kind, verdict, native)
        return _outcome(verdict, wrong)


def _header(rng: Random, fields: Any) -> bytes:
    return (
        mangled(rng, json.dumps(fields).encode()) if rng.random() < 0.2 else written(rng, grown(rng, fields))
    )


def _framed(rng: Random, header: bytes) -> bytes:
    length = len(header)
    if rng.random() < 0.05:
        length = rng.choice(
            (0, 1, length - 1, length + 1, 4097, 1 << 20, (1 << 20) + 1, (64 << 20) + 1, _HELD)
        )
    return struct.pack(">I", length & 0xFFFFFFFF) + header


def _header_in(data: bytes) -> frames.Header:
    framed = struct.pack(">I", len(data)) + data
    return frames.receive_header(Received(framed))  # type: ignore[arg-type]


def _read_frame(data: bytes) -> None:
    header = frames.receive_header(Received(data))  # type: ignore[arg-type]
    frames.blob_bytes(header, executor._blob_limit(header))
    frames.fields_of(header).seconds("time_limit_s", 0.0)
    frames.fields_of(header).name("command")


def _read_hello(data: bytes) -> None:
    frames.check_hello(data, lambda secret: None)


def _read_tensors(data: bytes) -> None:
    header = _header_in(data)
    tensor_sizes(frames.fields_of(header), frames.blob_bytes(header, 1 << 63))


def _read_plan(data: bytes) -> None:
    plan_of(_header_in(data))


def _read_json(data: bytes) -> None:
    strict_json.parse(data, len(data))


_READ: dict[str, Callable[[bytes], None]] = {
    "frame": _read_frame,
    "hello": _read_hello,
    "tensors": _read_tensors,
    "plan": _read_plan,
    "json": _read_json,
}


def _python(kind: str, data: bytes) -> Verdict:
    try:
        _READ[kind](data)
    except AgentError as error:
        return Verdict(False, f"{error.kind}: {error}")
    except ClosedError as error:
        return Verdict(False, f"closed: {error}")
    except ValueError as error:
        if kind != "json":
            raise
        return Verdict(False, str(error))
    return Verdict(True, "")


def _other_kind(kind: str, python: Verdict, native: Verdict) -> str:
    """Whether they refuse for errors of another kind, or in words that cannot be shown."""
    if python.accepted:
        return ""
    kinds = [reason.partition(":")[0] for reason in (python.reason, native.reason)]
    if kind != "json" and kinds[0] != kinds[1]:
        return f"Python: {python.reason}; native: {native.reason}"
    return complaint(python.reason)


# What the host makes of an answer, whichever command it is to.
_REPLIES: tuple[Callable[[Fields], object], ...] = (
    lambda fields: replies.machine_of(fields, ""),
    replies.state_of,
    replies.sensor_of,
    replies.installed_of,
    replies.scalars,
    replies.signature_of,
    lambda fields: replies.measurement_of(fields.values),
    lambda fields: replies.energy_of(fields.values),
)


def _answered(data: bytes) -> Outcome:
    try:
        connection = Connection(0, "secret", "board", lambda port: Received(data))
        header, blob = connection.request({"command": "run"})
    except DisconnectedError as error:
        return _outcome(Verdict(False, f"disconnected: {error}"), "")
    except EdgeError as error:
        return _outcome(Verdict(False, str(error)), complaint(str(error)))
    wrong = ""
    accepted = 0
    for read in (*_REPLIES, lambda fields: unpack(header.get("tensors"), blob)):
        try:
            read(replies.fields_of("board", header))
            accepted += 1
        except EdgeError as error:
            wrong = wrong or complaint(str(error))
    return _outcome(Verdict(bool(accepted), "no answer to any request"), wrong)


def _outcome(verdict: Verdict, violation: str) -> Outcome:
    kind = "ok" if verdict.accepted else "refused"
    return Outcome(kind, "" if verdict.accepted else verdict.reason, violation)
