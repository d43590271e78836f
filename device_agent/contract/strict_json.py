"""JSON from elsewhere: strict, bounded, and read the same way by the native executor.

Stricter than the standard library's reader (RFC 8259 leaves these open): UTF-8 without a byte order mark, no
`NaN` and no `Infinity`, no key twice in an object, no lone surrogate, signed whole numbers of 64 bits, finite
floating point numbers, and a bounded depth.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, Tuple

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
# Longer than any whole number of 64 bits; also keeps `int` from its quadratic time.
_INT_DIGITS = 20


def parse(data: bytes, max_bytes: int, what: str = "the text") -> Any:
    """The value of a JSON text.

    Args:
        data: the text.
        max_bytes: longest text.
        what: names the text in errors.

    Raises:
        ValueError: it is not JSON as above; the message is one line that can be shown.
    """
    if len(data) > max_bytes:
        raise ValueError("%s has %d bytes, at most %d are read" % (what, len(data), max_bytes))
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_constant,
        )
        # Without an escape, a text is what was UTF-8 before.
        _check_parts(value, b"\\u" in data)
    except (ValueError, RecursionError) as error:
        raise ValueError("%s is not valid JSON: %s" % (what, printable(error, 200))) from error
    return value


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object has a key twice")
    return fields


def _whole(text: str) -> int:
    if len(text) > _INT_DIGITS:
        raise ValueError("a whole number of more than 64 bits")
    value = int(text)
    if not _INT_MIN <= value <= _INT_MAX:
        raise ValueError("a whole number of more than 64 bits")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number that is not finite")
    return value


def _constant(text: str) -> Any:
    raise ValueError("%s is no number of JSON" % text)


def _check_parts(value: Any, escapes: bool) -> None:
    """Refuses what is nested too deeply, and lone surrogates, which escapes make and no encoding takes.

    The standard library's reader gives up in time where the nesting would be too deep for itself.
    """
    if escapes and isinstance(value, str):
        value.encode("utf-8")  # UnicodeEncodeError is a ValueError
    level = [value] if isinstance(value, (dict, list)) else []
    depth = 0
    while level:
        depth += 1
        if depth > LIMITS.json.depth:
            raise ValueError("nested deeper than %d" % LIMITS.json.depth)
        below = []
        for one in level:
            if escapes and isinstance(one, dict):
                for key in one:
                    key.encode("utf-8")
            for part in one.values() if isinstance(one, dict) else one:
                if isinstance(part, (dict, list)):
                    below.append(part)
                elif escapes and isinstance(part, str):
                    part.encode("utf-8")
        level = below
