"""Manifests and signatures with something changed, for readers that must agree about them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

MANIFEST: dict[str, Any] = {
    "schema": "edgetlm.bundle/2",
    "name": "net",
    "backend": "tvm",
    "threads": 2,
    "model": "lib.so",
    "files": {
        "lib.so": {"size": 5, "sha256": "a" * 64},
        "params.bin": {"size": 640, "sha256": "b" * 64},
    },
    "signature": {
        "inputs": [{"name": "x", "shape": [2, 3], "dtype": "float32", "open": [0]}],
        "outputs": [{"name": "y", "shape": [2], "dtype": "int8"}],
        "length": {"name": "n", "low": 1, "high": 4},
    },
    "parameters": [
        {"offset": 0, "nbytes": 24, "shape": [2, 3], "dtype": "float32"},
        {"offset": 64, "nbytes": 2, "shape": [2], "dtype": "int8"},
    ],
    "target": {"kind": "llvm"},
    "origin": ["é", 1.5, True, None, -3, 1e10],
}
DECODER: dict[str, Any] = {
    **MANIFEST,
    "schema": "edgetlm.bundle/3",
    "signature": {
        "inputs": [
            {"name": "tokens", "shape": [1], "dtype": "int32"},
            {"name": "position", "shape": [1], "dtype": "int32"},
        ],
        "outputs": [{"name": "logits", "shape": [1, 64], "dtype": "float32"}],
    },
    "state": [
        {"name": "key_0", "shape": [2, 4, 8, 16], "dtype": "float32"},
        {"name": "value_0", "shape": [2, 64, 8], "dtype": "float32"},
    ],
    "decoder": {
        "context": 128,
        "chunk": 64,
        "long_chunk": 128,
        "vocabulary": 64,
        "end_tokens": [0, 63],
        "verified": 4,
        "sequences": 2,
    },
}
_NUMBERS = [0, 1, -1, -64, 63, 64, 128, 576, 600, 1024, 1025, 1 << 34, (1 << 34) + 1, 1 << 40, (1 << 40) + 1]
_NUMBERS += [(1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1]
_TEXTS = [
    "",
    "x",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "a/b",
    "a\n",
    "lib.so",
    "params.bin",
    "manifest.json",
    "it's",
]
_TEXTS += [
    "a" * 100,
    "a" * 101,
    "A" * 64,
    "\x1b[2J",
    "\u202e",
    "\ud800",
    "é",
    "float16",
    "cuda",
    "edgetlm.bundle/1",
    "edgetlm.bundle/2",
    "edgetlm.bundle/3",
]
_OTHERS = [None, True, False, 1.0, 1e300, [], {}, [0], [1 << 40, 1 << 40, 0], [1 << 40] * 32, [1] * 33]
_PIECES = [
    b"0",
    b"-",
    b".",
    b"e5",
    b"\\",
    b'"',
    b"{",
    b"[",
    b" ",
    b"\x0c",
    b"\\u0041",
    b"\\ud83d\\ude00",
    b"\\ud83d",
]
_PIECES += [
    b"\xef\xbb\xbf",
    b"NaN",
    b"-Infinity",
    b",",
    b"null",
    b"1e999",
    b"1e-999",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
]
_PIECES += [b"[" * 64, b'{"a":' * 65, b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\0"]


def mutated_manifests(count: int, seed: int) -> Iterator[bytes]:
    """Manifests of which a few fields, or a few bytes, are others."""
    rng = random.Random(seed)
    yield json.dumps(MANIFEST).encode()
    for _ in range(count - 1):
        fields = copy.deepcopy(rng.choice([MANIFEST, DECODER]))
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            change_field(fields, rng)
        data = json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        yield mutated(data, rng) if rng.random() < 0.35 else data


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A text of which a few bytes are others, fewer or more."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place, what = rng.randrange(len(changed)), rng.random()
        if what < 0.3:
            changed[place] = rng.randrange(256)
        elif what < 0.5 and len(changed) > 1:
            del changed[place]
        elif what < 0.8:
            changed[place:place] = rng.choice(_PIECES)
        else:
            other = rng.randrange(len(changed))
            changed[place:place] = changed[other : other + rng.randrange(30)]
    return bytes(changed)


def change_field(fields: dict[str, Any], rng: random.Random) -> None:
    """Leave out a field, add one, or give one another value."""
    *way, last = rng.choice([path for path in _paths(fields) if path])
    holder: Any = fields
    for part in way:
        holder = holder[part]
    values = rng.choice([_NUMBERS, _TEXTS, _OTHERS])
    value = copy.deepcopy(rng.choice(values))
    what = rng.random()
    if what < 0.2:
        del holder[last]
    elif what < 0.3 and isinstance(holder, dict):
        holder[
            rng.choice(
                ["../x", "extra", "open", "length", "state", "decoder", "streamed", "a/b", ".hidden", "f"]
            )
        ] = value
    else:
        holder[last] = value


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from _paths(part, (*path, name))
