"""Reductions to the largest or the smallest float: it is infinite where all are, and NaN where one is.

TVM's own begin with the smallest finite number, and lose a NaN that another number follows. Its schedules
take only those reductions apart that they know, so that programs are written with them, and mended when they
are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from host.tensor_ir.structural import computed_once, mapped

# On a function whose reductions are to keep infinities and NaN; those of a softmax, for one, need not.
EXTREMES_OF_ALL = "edgetlm.extremes_of_all"
# On a function of maxima over windows, which are to keep infinities, and NaN where that takes no longer.
EXTREMES_OF_WINDOWS = "edgetlm.extremes_of_windows"
# Processors whose largest of two numbers loses NaN in one operand (x86) or in either. To keep it takes two
# instructions more for each element: nothing where memory bounds a reduction, but windows are read from a
# cache.
# With them ResNet's pooling takes 1.05 of its time on AVX-512, and 1.26 on AVX2 (Zen 4).
_LOSING_NAN_IN_WINDOWS = ("x86_64", "riscv64")
# From here on a literal is what a reduction begins with.
_LARGEST = 3e38
# The extreme of what was found so far and another number, NaN where one of them is.
_Combine = Callable[[type, Any, Any], Any]
# PTX ISA 8.5, "max" and "min": those of single precision that keep NaN are known from sm_80 on.
_FIRST_ARCH_OF_NAN = 80


def with_all_extremes(function: tirx.PrimFunc, body: tirx.Stmt, architecture: str) -> tirx.Stmt:
    """A lowered body in which the extremes of floats are of all numbers, where its function says so.

    Args:
        function: as it was scheduled.
        body: of the same, lowered for code generation.
        architecture: of the processor, see `architecture_of`, or of the GPU ("sm_87").
    """
    attributes = dict(function.attrs or {})
    if not attributes.get(EXTREMES_OF_ALL) and not attributes.get(EXTREMES_OF_WINDOWS):
        return body
    combine = _combine_for(architecture)
    if not attributes.get(EXTREMES_OF_ALL) and architecture in _LOSING_NAN_IN_WINDOWS:
        combine = _as_it_is

    def stored(store: tirx.BufferStore) -> tirx.BufferStore:
        value = store.value
        if not str(value.ty.dtype).startswith("float"):
            return store
        is_update = isinstance(value, tirx.Max | tirx.Min)
        changed = _updated(store, value, combine) if is_update else _begun(value)
        if changed is None:
            return store
        return tirx.BufferStore(store.buffer, changed, store.indices, store.span)

    return mapped(body, (tirx.BufferStore, stored))


def _combine_for(architecture: str) -> _Combine:
    if architecture.startswith("sm_"):
        return _keeping if int(architecture.removeprefix("sm_")) >= _FIRST_ARCH_OF_NAN else _chosen
    return _maximum if architecture == "aarch64" else _second_unless_first_wins


def _as_it_is(kind: type, found: Any, other: Any) -> Any:
    return kind(found, other)


def _begun(value: Any) -> Any | None:
    """Infinity in place of the smallest or the largest finite number."""
    literal = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(literal, tirx.FloatImm) or abs(float(literal.value)) < _LARGEST:
        return None
    return _filled(inf if float(literal.value) > 0.0 else -inf, value)


def _updated(store: tirx.BufferStore, value: Any, combine: _Combine) -> Any | None:
    """The extreme of what was found so far and another number; None where the store is no such update."""
    for found, other in ((value.a, value.b), (value.b, value.a)):
        same = isinstance(found, tvm.ir.TensorLoad) and found.source.same_as(store.buffer)
        if same and tvm_ffi.structural_equal(list(found.indices), list(store.indices)):
            return combine(type(value), found, other)
    return None


def _unless_nan(found: Any, extreme: Any) -> Any:
    """What was found stays if it is NaN: only then is it in no order with infinity."""
    return tirx.Select(found <= _filled(inf, found), extreme, found)


def _second_unless_first_wins(kind: type, found: Any, other: Any) -> Any:
    """LLVM's code generator takes the second number unless the first one wins, and so a NaN of the second."""
    return _unless_nan(found, kind(found, other))


def _maximum(kind: type, found: Any, other: Any) -> Any:
    """Arm has an instruction that keeps NaN of either."""
    name = "llvm.maximum" if kind is tirx.Max else "llvm.minimum"
    return tirx.call_llvm_pure_intrin(str(found.ty.dtype), name, found, other)


def _chosen(kind: type, found: Any, other: Any) -> Any:
    """CUDA's functions take the number where the other operand is NaN, so a comparison decides.

    It does not hold where one of them is NaN.
    """

    def of(value: Any) -> Any:
        stays = found >= value if kind is tirx.Max else found <= value
        return tirx.Select(stays, found, value)

    return _unless_nan(found, computed_once(other, of))


def _keeping(kind: type, found: Any, other: Any) -> Any:
    """One instruction of a GPU, of numbers in single precision."""
    if str(found.ty.dtype) != "float32":
        return _chosen(kind, found, other)
    operation = "max" if kind is tirx.Max else "min"
    name = f"edgetlm_{operation}_or_nan"
    text = f"""static __device__ __forceinline__ float {name}(float left, float right) {{
  float found;
  asm("{operation}.NaN.f32 %0, %1, %2;\\n" : "=f"(found) : "f"(left), "f"(right));
  return found;
}}
"""
    return cuda_func_call(name, found, other, source_code=text, return_type="float32")


def _filled(number: float, like: Any) -> Any:
    dtype = tvm.DataType(str(like.ty.dtype))
    literal = tirx.FloatImm(str(dtype).split("x")[0], number)
    return tirx.Broadcast(literal, dtype.lanes) if dtype.lanes > 1 else literal
