"""Headers of the wire in their right form, and frames that ended a listener, a daemon or a host once."""

from __future__ import annotations

import functools
import json
import struct
from typing import Any

from device_agent.contract.limits import LIMITS
from device_agent.wire import frames
from tests.fuzz.case import Case
from tests.fuzz.mutate import TOKENS

_FLOATS = {"shape": [3, 4], "dtype": "float32"}
_STATE = {
    "time_s": 1.5,
    "clocks_hz": [1.8e9, 1.8e9],
    "load_1min": 0.1,
    "governors": {"policy0": "schedutil"},
    "temperatures_c": {"cpu": 45.5},
    "throttle_count": 0,
    "limits_hz": {"policy0": [6e8, 1.8e9]},
    "devfreq": {"gpu": {"clock_hz": 1e9}},
}
_ENERGY = {
    "kind": "measured",
    "gross_j": 0.1,
    "above_idle_j": 0.05,
    "source": "ina3221",
    "boundary": "board",
    "rails": ["VDD_IN"],
    "trials": 3,
    "n_samples": 100,
    "trace": [[0.0, 5.5, 45.0], [0.1, 5.6, None]],
}
_HELLO = {"command": "hello", "schema": frames.SCHEMA, "secret": "s", "client": "a@b", "identity": "0f"}
_PLAN = {"warmup_s": 0.5, "min_repeats": 20, "max_time_s": 60.0, "energy": False, "trials": 3, "start_c": 0.0}

# By kind of the case.
HEADERS: dict[str, tuple[Any, ...]] = {
    "hello": (_HELLO,),
    "frame": (
        {"command": "run", "tensors": [_FLOATS], "blob_bytes": 48, "time_limit_s": 2.5},
        {"command": "load", "path": "/a/b"},
        {"command": "file.put", "sha256": "0" * 64, "blob_bytes": 10},
        {"command": "measure", "plan": _PLAN},
        {"command": "session.open", "engine": "tvm", "threads": 1, "memory_limit_bytes": None},
    ),
    "tensors": (
        {"blob_bytes": 48, "tensors": [_FLOATS]},
        {
            "blob_bytes": 60,
            "tensors": [_FLOATS, {"shape": [12], "dtype": "bool"}, {"shape": [0, 4], "dtype": "int8"}],
        },
        {"blob_bytes": 0, "tensors": []},
    ),
    "plan": (_PLAN, {}),
    "json": (
        {"a": [1, 2.5, {"b": None}], "c": "x\u00e9\n\U0001f600", "d": True, "e": -(2**63), "f": 1e300},
        [[], {}, "", 0, -0.0, [[[[[1]]]]]],
    ),
    "answer": (
        {"ok": True, "tensors": [_FLOATS], "blob_bytes": 48},
        {"ok": False, "error": {"kind": "busy", "message": "somebody else has it"}},
        {
            "ok": True,
            "machine": "aarch64",
            "cpu_name": "0x41:0xd0b",
            "cores": 4,
            "features": ["fp", "asimd"],
            "cache_bytes": {"L1": 65536},
            "frequency_hz": 1.8e9,
            "memory_bytes": 1 << 32,
            "software": {"python": "3.11"},
            "system": {"kernel": "6.12.34"},
            **_STATE,
        },
        {
            "ok": True,
            "times_s": [0.001, 0.0011],
            "energy": _ENERGY,
            "state_before": _STATE,
            "state_after": _STATE,
            "threads": 2,
            "throttled": False,
            "throttle_reasons": [],
            "invalid": "",
            "conditions": {"governor": "performance"},
        },
        {"ok": True, **_ENERGY},
        {
            "ok": True,
            "source": "none",
            "quantity": "",
            "rails": [],
            "boundary": "",
            "unavailable": "no sensor",
        },
        {
            "ok": True,
            "name": "m",
            "version": "0" * 64,
            "active": True,
            "path": "/x",
            "backend": "tvm",
            "manifest": {
                "signature": {"inputs": [], "outputs": [], "length": {"name": "n", "low": 1, "high": 8}}
            },
            "signature": {
                "inputs": [{"name": "x", "shape": [1, "n", None], "dtype": "float32"}],
                "outputs": [],
            },
        },
    ),
}
_TEXTS = (
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "\\ud800"}',
    b'{"command": "hello", "schema": "\\ud800"}',
    b'{"command": "hello", "schema": "X\\n2026-01-01 00:00:00 client 1 \\u001b[31m", "secret": ""}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": ["a"]}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": null}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "x", "blob_bytes": 1000000000000000000}',
    b'{"command": "hello", "schema": "edgetlm/1", "secret": "x", "blob_bytes": -1}',
    b'{"command": "file.put", "sha256": "aa", "blob_bytes": 1000000000000000}',
    b'{"command": "run", "tensors": [{"shape": [-1, -4], "dtype": "float32"}], "blob_bytes": 16}',
    b'{"command": "run", "tensors": [{"shape": [4611686018427387904, 4], "dtype": "int8"}], "blob_bytes": 0}',
    b'{"command": "run", "time_limit_s": NaN}',
    b'{"command": "run", "time_limit_s": Infinity}',
    b'{"ok": true, "times_s": [Infinity, 0.0, -1.0]}',
    b'{"ok": 1, "error": 5}',
    b'{"ok": false, "error": {"kind": "x", "message": "\\u001b]0;PWNED\\u0007"}}',
    b'{"ok": false, "error": 5}',
    b'{"ok": true, "blob_bytes": 1000000000000000}',
    b'{"ok": true, "tensors": [{"shape": [0, 4611686018427387904], "dtype": "int8"}], "blob_bytes": 0}',
    b'{"a":' + b"9" * 4000 + b"}",
    b"[" * 4000,
    b"\xff\xfe{}",
    b"[]", b"null", b"1", b'"a"', b"",
)  # fmt: skip
_RAW = (
    b"",
    b"\0\0\0\0",
    b"\0\0\0\1{",
    b"\0\0\0\2{}",
    b"\xff" * 100,
    struct.pack(">I", 1 << 30),
    struct.pack(">I", LIMITS.wire.header_bytes) + b"x" * 1000,
    b"GET / HTTP/1.0\r\n\r\n",
)


@functools.cache
def cases() -> list[Case]:
    """One a fault, for every kind of reader."""
    found = []
    for kind in HEADERS:
        framed = kind in ("frame", "hello", "answer")
        begin = _framed(b'{"ok": true}') if kind == "answer" else b""
        for number, text in enumerate((*_TEXTS, *(TOKENS if kind == "json" else ()))):
            found.append(Case(f"{kind}-{number}", {kind: begin + (_framed(text) if framed else text)}))
        for number, raw in enumerate(_RAW):
            found.append(Case(f"{kind}-raw-{number}", {kind: begin + raw}))
        for number, header in enumerate(HEADERS[kind]):
            text = json.dumps(header).encode()
            whole = begin + _framed(text) + bytes(48) if framed else text
            found.append(Case(f"{kind}-good-{number}", {kind: whole}))
    return found


def _framed(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text
