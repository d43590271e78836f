"""Half precision by integer arithmetic, for processors without instructions that convert it.

For RISC-V without Zfh, LLVM calls functions that take and return halves in floating-point registers. Those
that TVM adds to a kernel take them in integer registers: results are wrong. And a call for each element keeps
LLVM from using vectors. Both conversions are exact as IEEE 754 has them, ties to even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx

from host.build.target import architecture_of
from host.tensor_ir.structural import Rule, mapped

# Operations whose operands become floats where they are halves; the result of the first kind is a half again.
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
# Bits of a float: infinity, and the smallest number that no half is next to.
_INFINITY, _TOO_LARGE = 0x7F800000, 0x47800000
# The smallest normal half as a float's bits; what the exponent of a float is more than that of a half.
_NORMAL, _BIAS = 0x38800000, 112 << 23
_HALF = "float16"


def has_half_conversions(target: tvm.target.Target) -> bool:
    """Whether the processor, or what TVM adds for it, converts halves."""
    if architecture_of(target) != "riscv64":
        return True
    host = target if target.host is None else target.host
    return bool(tvm.target.codegen.target_has_features("zfhmin", host))


def without_half_conversions(body: tirx.Stmt) -> tirx.Stmt:
    """A lowered body in which halves are only moved, and computed with as floats."""
    rules: list[Rule] = [(tirx.Cast, _converted)]
    rules += [(kind, _computed(narrow=True)) for kind in _ARITHMETIC]
    rules += [(kind, _computed(narrow=False)) for kind in _COMPARISONS]
    return mapped(body, *rules)


def _converted(cast: tirx.Cast) -> Any:
    source, result = _kind(cast.value), _kind(cast)
    value = cast.value
    if source[0] == _HALF and result[0] != _HALF:
        wide = widened(value)
        return wide if result[0] == "float32" else tirx.Cast(_named(*result), wide)
    if result[0] == _HALF and source[0] != _HALF:
        single = value if source[0] == "float32" else tirx.Cast(_named("float32", result[1]), value)
        return narrowed(single)
    return cast


def _computed(narrow: bool) -> Callable[[Any], Any]:
    def visit(operation: Any) -> Any:
        if _kind(operation.a)[0] != _HALF:
            return operation
        made = type(operation)(widened(operation.a), widened(operation.b))
        return narrowed(made) if narrow else made

    return visit


def widened(value: Any) -> Any:
    """A float16 value or vector as float32, by integer operations."""
    lanes = _kind(value)[1]
    bits, named = _once(tirx.Cast(_named("uint32", lanes), _as("uint16", value)), "half")
    shifted = (bits & _all(0x7FFF, lanes)) << _all(13, lanes)
    # The product puts the exponent right, and makes subnormal numbers normal.
    scaled = _as("uint32", _as("float32", shifted) * _all(2.0**112, lanes, "float32"))
    # Infinities and numbers that are none have the largest exponent.
    special = shifted | _all(_INFINITY, lanes)
    magnitude = tirx.Select(shifted >= _all(0x1F << 23, lanes), special, scaled)
    return named(_as("float32", magnitude | ((bits & _all(0x8000, lanes)) << _all(16, lanes))))


def narrowed(value: Any) -> Any:
    """The bits (uint16) of the half-precision numbers that are nearest to float32 numbers, ties to even."""
    lanes = _kind(value)[1]
    bits, named = _once(_as("uint32", value), "single")
    size = bits & _all(0x7FFFFFFF, lanes)
    odd = (size >> _all(13, lanes)) & _all(1, lanes)
    normal = (size - _all(_BIAS, lanes) + _all(0xFFF, lanes) + odd) >> _all(13, lanes)
    # Added to 1/2, the places of a subnormal half are the last ones of the float, which rounds.
    tiny = _as("uint32", _as("float32", size) + _all(0.5, lanes, "float32")) - _all(0x3F000000, lanes)
    finite = tirx.Select(size < _all(_NORMAL, lanes), tiny, normal)
    special = tirx.Select(size > _all(_INFINITY, lanes), _all(0x7E00, lanes), _all(0x7C00, lanes))
    magnitude = tirx.Select(size >= _all(_TOO_LARGE, lanes), special, finite)
    made = magnitude | ((bits >> _all(16, lanes)) & _all(0x8000, lanes))
    return named(_as(_HALF, tirx.Cast(_named("uint16", lanes), made)))


def _once(value: Any, name: str) -> tuple[Any, Callable[[Any], Any]]:
    """A name for a value that is used several times, and what gives it that value in an expression."""
    variable = tirx.Var(name, _named(*_kind(value)))
    return variable, lambda body: tirx.Let(variable, value, body)


def _all(number: float, lanes: int, kind: str = "uint32") -> Any:
    scalar = tirx.const(number, kind)
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)


def _as(kind: str, value: Any) -> Any:
    return tirx.reinterpret(_named(kind, _kind(value)[1]), value)


def _kind(value: Any) -> tuple[str, int]:
    """Element type and lanes of an expression."""
    text = str(value.ty.dtype if hasattr(value.ty, "dtype") else value.ty)
    kind, _, lanes = text.partition("x")
    return kind, int(lanes or 1)


def _named(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"{kind}x{lanes}"
