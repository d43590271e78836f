"""Integers as tokens: exponents of small primes, then the digits of the remaining factor.

    0     0
    1     2^0
    56    2^3 7^1
    197   2^0 h3 x5        (197 = 3 * 64 + 5)

Every number has exactly one spelling, a new size consists of known parts, and the exponents show whether a
tile divides an extent. A number starts with `0` or `2^a` and ends before the first token that cannot be part
of a number.
"""

from __future__ import annotations

from collections.abc import Sequence

from host.errors import TlmError

ZERO = "0"
# Prime and largest exponent: 31 bits are enough for every extent that TensorIR indexes with int32.
_PRIMES = ((2, 31), (3, 19), (5, 13), (7, 11))
_LIMIT = 1 << 31
_BASE = 64

_STARTS = (ZERO, *(f"2^{exponent}" for exponent in range(_PRIMES[0][1] + 1)))
_EXPONENTS = tuple(f"{prime}^{exponent}" for prime, most in _PRIMES[1:] for exponent in range(1, most + 1))
_HIGH = tuple(f"h{digit}" for digit in range(_BASE))
# What is left has no factor 2, so its last digit is odd.
_LOW = tuple(f"x{digit}" for digit in range(1, _BASE, 2))

TOKENS: tuple[str, ...] = (*_STARTS, *_EXPONENTS, *_HIGH, *_LOW)
_PARTS = frozenset(TOKENS) - frozenset(_STARTS)


def spell(number: int) -> tuple[str, ...]:
    """The tokens of a number from 0 to 2^31 - 1.

    Raises:
        TlmError: the number is outside of that range.
    """
    if not 0 <= number < _LIMIT:
        raise TlmError(f"number {number} cannot be written: sizes go from 0 to {_LIMIT - 1}")
    if number == 0:
        return (ZERO,)
    tokens = []
    for prime, _ in _PRIMES:
        exponent = 0
        while number % prime == 0:
            number //= prime
            exponent += 1
        if exponent or prime == 2:
            tokens.append(f"{prime}^{exponent}")
    if number > 1:
        low = f"x{number % _BASE}"
        high = []
        while number >= _BASE:
            number //= _BASE
            high.append(f"h{number % _BASE}")
        tokens += [*reversed(high), low]
    return tuple(tokens)


def read(tokens: Sequence[str], start: int) -> tuple[int, int]:
    """The number that starts at a position, and the position behind it.

    Raises:
        TlmError: no number starts there, or it is not spelled as `spell` does.
    """
    end = start
    if end < len(tokens) and tokens[end] in _STARTS:
        end += 1
        while end < len(tokens) and tokens[end] in _PARTS:
            end += 1
    spelled = tuple(tokens[start:end])
    if not spelled:
        found = tokens[start] if start < len(tokens) else "the end"
        raise TlmError(f"a number was expected at token {start}, not {found}")
    number = 0 if spelled[0] == ZERO else 1
    rest = 0
    for token in spelled:
        if "^" in token:
            prime, exponent = token.split("^")
            number *= int(prime) ** int(exponent)
        elif token != ZERO:
            rest = rest * _BASE + int(token[1:])
    number *= rest or 1
    if number >= _LIMIT or spell(number) != spelled:
        raise TlmError(f"{' '.join(spelled)} at token {start} is not the spelling of a number")
    return number, end
