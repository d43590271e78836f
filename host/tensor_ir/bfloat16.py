"""Numbers of bfloat16 on x86: dot products and conversions by the processor's own instructions.

TVM's code generator has no type of LLVM for bfloat16, and can call no intrinsic that takes them. So they are
integers in memory, and what computes with them are functions in LLVM's own language, which are imported into
the module of a kernel and inlined. A conversion rounds to the nearest number, ties to even, as VCVTNEPS2BF16
does, for which subnormal numbers are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401 - makes the type known to numpy
import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from host.errors import BuildError
from host.tensor_ir.structural import Rule, mapped
from targets.x86_64 import BFLOAT16_FEATURE

_TYPE, _BITS, _REINTERPRET = "bfloat16", "uint16", "tirx.reinterpret"
_PREFIX = "edgetlm_bfloat16_"
# Lanes of 32 bits that the dot product takes.
_LANES = (4, 8, 16)
_DOT = """
declare <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
    <{lanes} x float>, <{elements} x bfloat>, <{elements} x bfloat>)

define <{lanes} x float> @{name}(<{lanes} x float> %sums, <{lanes} x i32> %left, <{lanes} x i32> %right) {{
  %a = bitcast <{lanes} x i32> %left to <{elements} x bfloat>
  %b = bitcast <{lanes} x i32> %right to <{elements} x bfloat>
  %c = call <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
      <{lanes} x float> %sums, <{elements} x bfloat> %a, <{elements} x bfloat> %b)
  ret <{lanes} x float> %c
}}
"""
_NARROWED = """
define {bits} @{name}({single} %value) {{
  %narrow = fptrunc {single} %value to {half}
  %bits = bitcast {half} %narrow to {bits}
  ret {bits} %bits
}}
"""


def dot_function(lanes: int) -> str:
    """The name of the function that adds two products of bfloat16 numbers to each of so many lanes.

    It takes the sums, and both operands as 32-bit integers: pairs of numbers.
    """
    return f"{_PREFIX}dot_{lanes}"


def has_bfloat16(target: tvm.target.Target) -> bool:
    """Whether the target has the instructions."""
    return f"+{BFLOAT16_FEATURE}" in [str(name) for name in target.attrs.get("mattr", ())]


def as_bits(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function before it is lowered whose numbers of bfloat16 are 16 bits each; itself if it has none.

    They are moved, converted, and given to dot products. TVM would store every buffer of the function's
    own in single precision instead.
    """
    buffers: dict[Any, Any] = {}
    rules: list[Rule] = [
        (tirx.Var, _retyped(buffers)),
        (tvm.ir.TensorLoad, _loaded),
        (tirx.BufferStore, _stored),
        (tirx.Cast, _widened),
        (tvm.ir.Call, _moved),
    ]
    made = mapped(function, *rules)
    return made if buffers else function


def _retyped(buffers: dict[Any, Any]) -> Callable[[Any], Any]:
    """Replaces each buffer of bfloat16 by one of integers, the same one everywhere."""

    def visit(variable: Any) -> Any:
        if str(getattr(variable, "dtype", "")) != _TYPE:
            return variable
        if variable not in buffers:
            buffers[variable] = variable.with_dtype(_BITS)
        return buffers[variable]

    return visit


def _loaded(load: Any) -> Any:
    if _kind(load)[0] != _TYPE:
        return load
    # The type of bfloat16 stays around it until the operation that reads it is rewritten.
    return tirx.reinterpret(str(load.ty.dtype), tirx.BufferLoad(load.source, load.indices))


def _stored(store: Any) -> Any:
    if _kind(store.value)[0] != _TYPE:
        return store
    return tirx.BufferStore(store.buffer, _bits(store.value), store.indices)


def _widened(cast: Any) -> Any:
    """Conversions from bfloat16: the bits are the upper half of a float's."""
    kind, lanes = _kind(cast.value)
    if kind != _TYPE:
        return cast
    bits = _bits(cast.value)
    wide = tirx.Cast(_named("uint32", lanes), bits) << _all_of(16, lanes)
    value = tirx.reinterpret(_named("float32", lanes), wide)
    return value if _kind(cast)[0] == "float32" else tirx.Cast(str(cast.ty.dtype), value)


def _moved(call: Any) -> Any:
    """Bits that are seen as another type, and addresses."""
    if call.op.name == "tirx.address_of" and _kind(call.args[0])[0] == _TYPE:
        return tirx.address_of(_bits(call.args[0]))
    if call.op.name != _REINTERPRET or _kind(call)[0] == _TYPE or _kind(call.args[0])[0] != _TYPE:
        return call
    return tirx.reinterpret(str(call.ty.dtype), _bits(call.args[0]))


def _bits(value: Any) -> Any:
    """The bits of a number of bfloat16."""
    kind, lanes = _kind(value)
    if isinstance(value, tvm.ir.Call) and value.op.name == _REINTERPRET:
        return value.args[0]
    if isinstance(value, tvm.ir.Call) and value.op.name == "prim.if_then_else":
        return tirx.if_then_else(value.args[0], _bits(value.args[1]), _bits(value.args[2]))
    if isinstance(value, tirx.Let):
        return tirx.Let(value.var, value.value, _bits(value.body))
    if isinstance(value, tirx.Select):
        return tirx.Select(value.condition, _bits(value.true_value), _bits(value.false_value))
    if isinstance(value, tirx.Broadcast):
        return tirx.Broadcast(_bits(value.value), lanes)
    if isinstance(value, tirx.FloatImm):
        return tirx.const(int(np.array(value.value, kind).view(_BITS)), _BITS)
    if isinstance(value, tirx.Cast):
        single = value.value
        if _kind(single)[0] != "float32":
            single = tirx.Cast(_named("float32", lanes), single)
        return _nearest(tirx.reinterpret(_named("uint32", lanes), single), lanes)
    raise BuildError(f"arithmetic in bfloat16 is not compiled: {str(value)[:200]}")


def _nearest(bits: Any, lanes: int) -> Any:
    """The upper half of a float's bits, rounded to the nearest, ties to even.

    `with_bfloat16` knows it again after TVM has made vectors of it.
    """
    odd = (bits >> _all_of(16, lanes)) & _all_of(1, lanes)
    rounded = (bits + (odd + _all_of(0x7FFF, lanes))) >> _all_of(16, lanes)
    return tirx.Cast(_named(_BITS, lanes), rounded)


def _all_of(number: int, lanes: int) -> Any:
    scalar = tirx.const(number, "uint32")
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)


def _kind(expression: Any) -> tuple[str, int]:
    """Element type and lanes of an expression."""
    kind, _, lanes = str(getattr(expression.ty, "dtype", "")).partition("x")
    return kind, int(lanes or 1)


def _named(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"{kind}x{lanes}"


def with_bfloat16(body: tirx.Stmt) -> tirx.Stmt:
    """A lowered body whose conversions and dot products of bfloat16 numbers are instructions."""
    used: dict[str, str] = {}
    rules: list[Rule] = [(tirx.Cast, _narrowed(used)), (tvm.ir.Call, _noted(used))]
    made = mapped(body, *rules)
    if not used:
        return body
    text = tvm.ir.StringImm("".join(used[name] for name in sorted(used)))
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, made)


def _noted(used: dict[str, str]) -> Callable[[Any], Any]:
    """Keeps calls as they are, and the functions that they call in `used`."""
    names = {dot_function(lanes): lanes for lanes in _LANES}

    def visit(call: Any) -> Any:
        first = call.args[0] if len(call.args) else None
        name = str(first.value) if isinstance(first, tvm.ir.StringImm) else ""
        if name in names:
            lanes = names[name]
            used[name] = _DOT.format(lanes=lanes, bits=32 * lanes, elements=2 * lanes, name=name)
        return call

    return visit


def _narrowed(used: dict[str, str]) -> Callable[[Any], Any]:
    """Replaces what rounds to bfloat16 by integer arithmetic."""

    def visit(cast: Any) -> Any:
        kind, lanes = _kind(cast)
        value = _rounded(cast.value) if kind == _BITS else None
        if value is None:
            return cast
        name = f"{_PREFIX}narrowed_{lanes}"
        single, half, bits = (
            kind if lanes == 1 else f"<{lanes} x {kind}>" for kind in ("float", "bfloat", "i16")
        )
        used[name] = _NARROWED.format(name=name, single=single, half=half, bits=bits)
        return tirx.call_pure_extern(_named(_BITS, lanes), name, value)

    return visit


def _rounded(value: Any) -> Any | None:
    """The float whose bits `_nearest` rounds in an expression; None of other expressions.

    The bits may have got a name.
    """
    if not isinstance(value, tirx.RShift) or not isinstance(value.a, tirx.Add):
        return None
    bits = value.a.a
    lanes = _kind(bits)[1]
    if not tvm_ffi.structural_equal(value, _nearest(bits, lanes).value):
        return None
    kind = _named("float32", lanes)
    if isinstance(bits, tvm.ir.Call) and bits.op.name == _REINTERPRET and str(bits.args[0].ty.dtype) == kind:
        return bits.args[0]
    return tirx.reinterpret(kind, bits)
