"""Maxima and minima with a number: NaN stays NaN, as ONNX Runtime and NumPy have it.

The code generator compares the first operand with the second and takes the second unless the first one wins.
x86 does that in one instruction in either order, so the number comes first. Arm has an instruction that keeps
NaN, LLVM's `maximum`, as fast as the one that does not. CUDA's functions take the number where the other
operand is NaN: there, a comparison and a choice take their place. RISC-V has no such instruction, and two
more for each vector would be the price: there, relu of NaN is 0.

The programs of schedules and records stay as they are. What becomes an integer is left alone: bounds of a
place or of a quantised number hold for NaN too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.tensor_ir.structural import computed_once, mapped

# A maximum or minimum of a value and a number.
_Write = Callable[[Any], Any]
# The name of GPUs among architectures.
CUDA = "cuda"
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)


def keeping_nan(body: tirx.Stmt, architecture: str) -> tirx.Stmt:
    """A body in which relu, clip and the like of NaN is stored as NaN.

    Args:
        body: of a function that is lowered for LLVM or for CUDA.
        architecture: of the processor, see `architecture_of`; `CUDA` for a GPU.
    """
    write = {"x86_64": _number_first, "aarch64": _maximum, CUDA: _chosen}.get(architecture)
    if write is None:
        return body

    def stored(store: tirx.BufferStore) -> tirx.BufferStore:
        extremes: list[Any] = []
        tvm_ffi.structural_walk(store.value, ((tirx.Max, tirx.Min), extremes.append))
        if not extremes:
            return store
        value = _kept(store.value, write)
        if value.same_as(store.value):
            return store
        return tirx.BufferStore(store.buffer, value, store.indices, store.span)

    return mapped(body, (tirx.BufferStore, stored))


def _number_first(value: Any) -> Any:
    return type(value)(value.b, value.a)


def _maximum(value: Any) -> Any:
    name = "llvm.maximum" if isinstance(value, tirx.Max) else "llvm.minimum"
    return tirx.call_llvm_pure_intrin(str(value.ty.dtype), name, value.a, value.b)


def _chosen(value: Any) -> Any:
    """The number where it wins: NaN is in no order with it."""
    number = value.b

    def of(one: Any) -> Any:
        wins = one < number if isinstance(value, tirx.Max) else one > number
        return tirx.Select(wins, number, one)

    return computed_once(value.a, of)


def _kept(value: Any, write: _Write) -> Any:
    """The value with its maxima rewritten, down to what is no arithmetic of floats."""
    if not str(value.ty.dtype).startswith("float"):
        return value
    if isinstance(value, tirx.Max | tirx.Min):
        inner = _again(value, _kept(value.a, write), _kept(value.b, write))
        return write(inner) if _is_number(inner.b) and not _is_number(inner.a) else inner
    if isinstance(value, _ARITHMETIC):
        return _again(value, _kept(value.a, write), _kept(value.b, write))
    if isinstance(value, tirx.Select):
        yes, no = _kept(value.true_value, write), _kept(value.false_value, write)
        unchanged = yes.same_as(value.true_value) and no.same_as(value.false_value)
        return value if unchanged else tirx.Select(value.condition, yes, no)
    if isinstance(value, tirx.Cast):
        inner = _kept(value.value, write)
        return value if inner.same_as(value.value) else tirx.Cast(str(value.ty.dtype), inner)
    if isinstance(value, tirx.Let):
        inner = _kept(value.body, write)
        return value if inner.same_as(value.body) else tirx.Let(value.var, value.value, inner)
    if isinstance(value, tvm.ir.Call) and value.op.name == "prim.if_then_else":
        yes, no = _kept(value.args[1], write), _kept(value.args[2], write)
        unchanged = yes.same_as(value.args[1]) and no.same_as(value.args[2])
        return value if unchanged else tirx.if_then_else(value.args[0], yes, no)
    return value


def _again(value: Any, a: Any, b: Any) -> Any:
    return value if a.same_as(value.a) and b.same_as(value.b) else type(value)(a, b)


def _is_number(value: Any) -> bool:
    """Whether it is a literal other than NaN, which every element becomes as it is."""
    literal = value.value if isinstance(value, tirx.Broadcast) else value
    return isinstance(literal, tirx.FloatImm) and not isnan(float(literal.value))
