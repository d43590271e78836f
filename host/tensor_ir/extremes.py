"""Reductions to the largest or the smallest float: it is infinite where all are, and NaN where one is.

TVM's own begin with the smallest finite number, and lose a NaN that another number follows. Its schedules
take only those reductions apart that they know, so that programs are written with them, and mended when they
are compiled.
"""

from __future__ import annotations

from math import inf
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.tensor_ir.structural import mapped

# On a function whose reductions are to keep infinities and NaN; those of a softmax, for one, need not.
EXTREMES_OF_ALL = "edgetlm.extremes_of_all"
# From here on a literal is what a reduction begins with.
_LARGEST = 3e38


def with_all_extremes(function: tirx.PrimFunc, body: tirx.Stmt) -> tirx.Stmt:
    """A lowered body in which the extremes of floats are of all numbers, where its function says so.

    Args:
        function: as it was scheduled.
        body: of the same, lowered for code generation.
    """
    if not function.attrs or not function.attrs.get(EXTREMES_OF_ALL):
        return body
    return mapped(body, (tirx.BufferStore, _stored))


def _stored(store: tirx.BufferStore) -> tirx.BufferStore:
    value = store.value
    if not str(value.ty.dtype).startswith("float"):
        return store
    changed = _begun(value) if not isinstance(value, tirx.Max | tirx.Min) else _updated(store, value)
    return store if changed is None else tirx.BufferStore(store.buffer, changed, store.indices, store.span)


def _begun(value: Any) -> Any | None:
    """Infinity in place of the smallest or the largest finite number."""
    literal = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(literal, tirx.FloatImm) or abs(float(literal.value)) < _LARGEST:
        return None
    return _filled(inf if float(literal.value) > 0.0 else -inf, value)


def _updated(store: tirx.BufferStore, value: Any) -> Any | None:
    """The extreme of what was found so far and another number.

    The code generator takes the second number unless the first one wins, which keeps a NaN of the second one.
    What was found is the first one, and stays if it is NaN: only then is it in no order with infinity.
    """
    for found, other in ((value.a, value.b), (value.b, value.a)):
        same = isinstance(found, tvm.ir.TensorLoad) and found.source.same_as(store.buffer)
        if same and tvm_ffi.structural_equal(list(found.indices), list(store.indices)):
            return tirx.Select(found <= _filled(inf, found), type(value)(found, other), found)
    return None


def _filled(number: float, like: Any) -> Any:
    dtype = tvm.DataType(str(like.ty.dtype))
    literal = tirx.FloatImm(str(dtype).split("x")[0], number)
    return tirx.Broadcast(literal, dtype.lanes) if dtype.lanes > 1 else literal
