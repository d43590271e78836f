"""Conditions that say nothing to TVM's simplifier, and names that say nothing to its narrowing of indices.

TVM takes the condition of a choice for a fact: within `select(i < 10, table[min(i, 9)], x)` it leaves out the
bound of the index, although both sides of a selection are computed. And it takes numbers for ordered: of
`not a < b` it makes `b <= a`, which is another thing where an operand is NaN. What `opaque` gives is to TVM a
number of one bit; LLVM sees through it.

`NarrowDataType` remembers the bounds of each expression. Those of a name it knows within the expression that
gives the name its value, and not where it reaches the same name by way of a condition or a function: TVM then
refuses the program, as two bounds of one name differ. (Seen with the exponent within a logarithm that becomes
a whole number, and with a byte that is compared.)
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from host.tensor_ir.structural import mapped

_NAMED = "edgetlm.named"
_EXTERN = tirx.call_pure_extern("int32", _NAMED).op.name


def opaque(condition: Any) -> Any:
    """A truth value that the simplifier neither turns around nor takes for a fact."""
    return tirx.bitwise_and(condition, tirx.const(True, "bool"))


def with_opaque_names(body: tirx.Stmt) -> tirx.Stmt:
    """The same with names in expressions as calls, whose bounds TVM does not look for."""

    def hidden(name: tirx.Let) -> Any:
        return tirx.call_pure_extern(_dtype(name), _NAMED, name.var, name.value, name.body)

    return mapped(body, (tirx.Let, hidden))


def with_names_again(body: tirx.Stmt) -> tirx.Stmt:
    """What `with_opaque_names` was given, whatever integers became narrower in between."""

    def shown(call: tvm.ir.Call) -> Any:
        if getattr(call.op, "name", "") != _EXTERN or call.args[0].value != _NAMED:
            return call
        variable, value, inner = call.args[1:]
        return tirx.Let(variable, _as(_dtype(variable), value), _as(_dtype(call), inner))

    return mapped(body, (tvm.ir.Call, shown))


def _as(dtype: str, value: Any) -> Any:
    return value if _dtype(value) == dtype else tirx.Cast(dtype, value)


def _dtype(value: Any) -> str:
    return str(value.ty.dtype)
