"""Mutations of bytes, of trees of JSON values, and of their text."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

# Written by whatever runs the commands of a payload, wherever that happens to be.
CANARY = "edgetlm-fuzz-canary"
COMMAND = f"touch {CANARY}"

WHOLE = (
    *(0, 1, -1, 2, 7, 63, 64, 127, 128, 255, 256, 1023, 1025, 4096, 65535, 65536, 10**6),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**53, 2**62, 2**63 - 1, -(2**63)),
)
TOO_LARGE = (2**63, -(2**63) - 1, 2**64, 10**30, 10**400)
FRACTIONS = (0.0, -0.0, 0.5, -1.5, 1e-320, 1e-12, 3e38, 1e308, 1e17)
TEXTS = (
    *("", ".", "..", "/", "../x", "../../../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "..\\x", "a\0b"),
    *("-x", "--help", ".hidden", "a\n", "\n", "a\r\nb", " a", "a ", "\t", "name\u2028x", "\u202egnp.exe"),
    *(
        "\x1b]0;title\x07\x1b[2J\x1b[31mred",
        "\x7f",
        "\x9b31m",
        "é",
        "e\u0301",
        "\uffff",
        "\U0001f600",
        "\udfff",
    ),
    *("None", "null", "NaN", "Infinity", "true", "0", "-1", "1e999", "0x10", "9" * 400),
    *("lib.so", "manifest.json", "manifest.sig", "params.bin", "local", "tvm", "x" * 101, "x" * 5000),
    *("$(" + COMMAND + ")", "`" + COMMAND + "`", "; " + COMMAND + ";", "-oProxyCommand=" + COMMAND),
    *(f"__import__('os').system('{COMMAND}')", "%s%n%x", "{0.__class__}", "<script>alert(1)</script>"),
)
TOKENS = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"01", b"1.", b".5", b"+1", b"1E5", b"1e-400"),
    *(b"9223372036854775808", b"-9223372036854775809", b"9" * 4400, b'"\\ud800"', b'"\\udc00\\ud800"'),
    *(
        b'"\\ud83d\\ude00"',
        b'"\\u0000"',
        b'"\x00"',
        b'"\n"',
        b'"\\x41"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"'a'",
    ),
    *(b"[" * 63 + b"]" * 63, b"[" * 70 + b"]" * 70, b"[" * 5000, b'{"a":' * 70 + b"1" + b"}" * 70),
    *(
        b"true",
        b"nul",
        b"True",
        b"{}",
        b"[]",
        b"[,]",
        b"[1,]",
        b'{"a":1,"a":2}',
        b'{"a":1,}',
        b"/**/1",
        b" \xa0 ",
    ),
    *(b'"\xc0\x80"', b'"\xf4\x90\x80\x80"', b'"\\u00', b'"\\', b"\xef\xbb\xbf{}", b"undefined", b"1 2"),
)


def number(rng: Random) -> int:
    """A whole number at some edge, or near one."""
    return rng.choice(WHOLE) + rng.choice((0, 0, 0, 1, -1))


def value(rng: Random) -> Any:
    """Any JSON value."""
    kind = rng.randrange(10)
    if kind < 4:
        return number(rng)
    if kind < 7:
        return rng.choice(TEXTS)
    return copy.deepcopy(
        rng.choice((*FRACTIONS, *TOO_LARGE, None, True, False, [], {}, [[]], {"": None}, [0] * 40, [None, 1]))
    )


def mangled(rng: Random, data: bytes, others: Sequence[bytes] = (), steps: int = 0) -> bytes:
    """Bytes after some random changes.

    Args:
        rng: decides all.
        data: to be changed.
        others: of which pieces are put in.
        steps: number of changes; any by default.
    """
    changed = bytearray(data)
    for _ in range(steps or rng.choice((1, 1, 1, 2, 3, 8))):
        changed = bytearray(rng.choice(_STEPS)(rng, changed, others))
    return bytes(changed)


def _flip(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def _overwrite(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    width = rng.choice((1, 2, 4, 8))
    at = rng.randrange(max(1, len(data) - width + 1))
    order = rng.choice(("little", "big"))
    data[at : at + width] = (number(rng) % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]
    return data


def _insert(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    piece = rng.choice((rng.randbytes(rng.choice((1, 2, 4, 9, 40))), rng.choice(TOKENS)))
    return data[:at] + piece + data[at:]


def _remove(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 2, 4, 30)) :]


def _repeat(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    start, stop = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:stop] + data[start : min(stop, start + 4096)] * rng.choice((1, 2, 8)) + data[stop:]


def _cut(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _splice(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    if not others:
        return data
    other = rng.choice(others)
    start = rng.randrange(len(other) + 1)
    at = rng.randrange(len(data) + 1)
    return data[:at] + other[start : start + rng.choice((4, 32, 1024, 1 << 20))] + data[at:]


def _swap(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    """Exchanges a word of the data for a token."""
    words = bytes(data).split(b",")
    words[rng.randrange(len(words))] = rng.choice(TOKENS)
    return b",".join(words)


_STEPS: tuple[Callable[[Random, bytearray, Sequence[bytes]], bytes], ...] = (
    _flip, _flip, _overwrite, _overwrite, _insert, _remove, _repeat, _cut, _splice, _swap,
)  # fmt: skip


def grown(rng: Random, tree: Any, steps: int = 0) -> Any:
    """A tree of JSON values after some random changes; the tree itself is left as it is.

    Args:
        rng: decides all.
        tree: of dictionaries, lists, texts and numbers.
        steps: number of changes; any by default.
    """
    tree = copy.deepcopy(tree)
    for _ in range(steps or rng.choice((1, 1, 1, 2, 4))):
        places = _places(tree)
        if not places:
            return value(rng)
        parent, key = rng.choice(places)
        _change(rng, parent, key, places)
    return tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every value of a tree as its parent and its key or index."""
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting and len(places) < 20_000:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        places += [(one, key) for key in keys]
        waiting += [one[key] for key in keys]
    return places


def _change(rng: Random, parent: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
    found = parent[key]
    kind = rng.randrange(12)
    if kind < 4:
        parent[key] = value(rng)
    elif kind < 6:
        parent[key] = _akin(rng, found)
    elif kind == 6:
        del parent[key]
    elif kind == 7:
        other, place = rng.choice(places)
        if isinstance(other, dict):
            found = other.get(place)
        parent[key] = copy.deepcopy(found)
    elif kind == 8 and isinstance(parent, dict):
        parent[rng.choice((*TEXTS, str(key) + " ", str(key).upper()))] = parent.pop(key)
    elif kind == 9 and isinstance(found, list):
        parent[key] = found * rng.choice((2, 3, 40))
    elif kind == 10:
        parent[key] = [found] if rng.random() < 0.5 else {"x": found}
    elif isinstance(parent, list):
        parent.insert(key, value(rng))
    else:
        parent[rng.choice(TEXTS)] = value(rng)


def _akin(rng: Random, found: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(found, bool) or found is None:
        return rng.choice((True, False, None, 0, 1))
    if isinstance(found, int):
        return rng.choice(
            (
                number(rng),
                found + 1,
                found - 1,
                -found,
                found * 2,
                float(max(-(10**300), min(found, 10**300))),
            )
        )
    if isinstance(found, float):
        return rng.choice((*FRACTIONS, -found, found * 1e9))
    if isinstance(found, str):
        at = rng.randrange(len(found) + 1)
        return found[:at] + rng.choice(TEXTS) + found[at + rng.choice((0, 1)) :]
    return value(rng)


def written(rng: Random, tree: Any) -> bytes:
    """The text of a tree; sometimes one that no writer of JSON makes."""
    try:
        text = json.dumps(tree, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        text = b"{}"
    return mangled(rng, text, steps=rng.choice((1, 2))) if rng.random() < 0.3 else text
