"""Frames of the wire: both executors' readers of what a host sends, the host's of what is answered."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from device_agent.contract import strict_json
from device_agent.contract.fields import Fields
from device_agent.errors import AgentError, ClosedError
from host.errors import EdgeError
from host.transport import replies
from host.transport.wire import Connection, DisconnectedError, unpack
from tests.fuzz.case import Case, Outcome, complaint
from tests.fuzz.corpus import frames as found
from tests.fuzz.mutate import grown, mangled, written
from tests.fuzz.targets.native import NativeReader, Verdict, disagreement
from tests.fuzz.wire_readers import Received, read_frame, read_hello, read_plan, read_tensors

KINDS = ("frame", "hello", "tensors", "plan", "json")
_ANSWER = "answer"
_HELD = 1 << 62


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


def _read_json(data: bytes) -> None:
    strict_json.parse(data, len(data))


_READ: dict[str, Callable[[bytes], None]] = {
    "frame": read_frame,
    "hello": read_hello,
    "tensors": read_tensors,
    "plan": read_plan,
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
