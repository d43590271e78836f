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

from host.tensor_ir.structural import computed_once, mapped

# On a function whose reductions are to keep infinities and NaN; those of a softmax, for one, need not.
EXTREMES_OF_ALL = "edgetlm.extremes_of_all"
# From here on a literal is what a reduction begins with.
_LARGEST = 3e38
# The extreme of what was found, which is no NaN, and another number, which may be one.
_Combine = Callable[[type, Any, Any], Any]


def with_all_extremes(function: tirx.PrimFunc, body: tirx.Stmt, on_gpu: bool = False) -> tirx.Stmt:
    """A lowered body in which the extremes of floats are of all numbers, where its function says so.

    Args:
        function: as it was scheduled.
        body: of the same, lowered for code generation.
        on_gpu: whether the code generator is that of CUDA.
    """
    if not function.attrs or not function.attrs.get(EXTREMES_OF_ALL):
        return body
    combine: _Combine = _chosen if on_gpu else _second_unless_first_wins

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


def _begun(value: Any) -> Any | None:
    """Infinity in place of the smallest or the largest finite number."""
    literal = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(literal, tirx.FloatImm) or abs(float(literal.value)) < _LARGEST:
        return None
    return _filled(inf if float(literal.value) > 0.0 else -inf, value)


def _updated(store: tirx.BufferStore, value: Any, combine: _Combine) -> Any | None:
    """The extreme of what was found so far and another number.

    What was found stays if it is NaN: only then is it in no order with infinity.
    """
    for found, other in ((value.a, value.b), (value.b, value.a)):
        same = isinstance(found, tvm.ir.TensorLoad) and found.source.same_as(store.buffer)
        if same and tvm_ffi.structural_equal(list(found.indices), list(store.indices)):
            return tirx.Select(found <= _filled(inf, found), combine(type(value), found, other), found)
    return None


def _second_unless_first_wins(kind: type, found: Any, other: Any) -> Any:
    """LLVM's code generator takes the second number unless the first one wins, and so a NaN of the second."""
    return kind(found, other)


def _chosen(kind: type, found: Any, other: Any) -> Any:
    """CUDA's functions take the number where the other operand is NaN, so a comparison decides.

    It does not hold where one of them is NaN. What was found is none.
    """

    def of(value: Any) -> Any:
        stays = found >= value if kind is tirx.Max else found <= value
        return tirx.Select(stays, found, value)

    return computed_once(other, of)


def _filled(number: float, like: Any) -> Any:
    dtype = tvm.DataType(str(like.ty.dtype))
    literal = tirx.FloatImm(str(dtype).split("x")[0], number)
    return tirx.Broadcast(literal, dtype.lanes) if dtype.lanes > 1 else literal
