"""Verification of Ed25519 signatures, for devices that have nothing but the standard library.

RFC 8032, section 5.1.7, with its checks of what a signature may look like, and without keys of a small order,
under which one signature is that of many messages; point arithmetic in extended coordinates as in its section
5.1.4. The native executor's library (zig's) decides the same. Nothing here is secret, so nothing has to take
the same time for all values. Signing is the host's, by a library.
"""

from __future__ import annotations

import hashlib
from typing import Optional, Tuple

KEY_BYTES = 32
SIGNATURE_BYTES = 64
# The field's prime, the base point's order, and the curve's constant -121665/121666.
_P = (1 << 255) - 19
_ORDER = (1 << 252) + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

# X, Y, Z and T with x = X/Z, y = Y/Z and x*y = T/Z.
_Point = Tuple[int, int, int, int]
_NEUTRAL: _Point = (0, 1, 1, 0)


def verify(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature is that of a message by the owner of a public key.

    Args:
        key: 32 bytes.
        message: any bytes.
        signature: 64 bytes.
    """
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    public, commitment = _decoded(key), _decoded(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if public is None or commitment is None or scalar >= _ORDER:
        return False
    if _multiplied(4, public)[0] % _P == 0 or commitment[0] == 0:
        return False
    digest = hashlib.sha512(signature[:32] + key + message).digest()
    challenge = int.from_bytes(digest, "little") % _ORDER
    return _equal(_multiplied(scalar, _BASE), _sum(commitment, _multiplied(challenge, public)))


def _sum(first: _Point, second: _Point) -> _Point:
    a = (first[1] - first[0]) * (second[1] - second[0]) % _P
    b = (first[1] + first[0]) * (second[1] + second[0]) % _P
    c = 2 * first[3] * second[3] * _D % _P
    d = 2 * first[2] * second[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiplied(scalar: int, point: _Point) -> _Point:
    result = _NEUTRAL
    while scalar:
        if scalar & 1:
            result = _sum(result, point)
        point = _sum(point, point)
        scalar >>= 1
    return result


def _equal(first: _Point, second: _Point) -> bool:
    return (first[0] * second[2] - second[0] * first[2]) % _P == 0 and (
        first[1] * second[2] - second[1] * first[2]
    ) % _P == 0


def _decoded(text: bytes) -> Optional[_Point]:
    """The point of an encoding; None where it is of no point, or not the one encoding that a point has."""
    number = int.from_bytes(text, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return None
    squared = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(squared, (_P + 3) // 8, _P)
    if (x * x - squared) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - squared) % _P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _base() -> _Point:
    # Its y is 4/5 and its x is even.
    point = _decoded((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))
    assert point is not None
    return point


_BASE = _base()
