"""Functions of an imported module beside `main`: importers write some operators as loops over elements."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

# What a function of an importer may call. Anything else could reach outside of its tensors: a worker's answer
# is compiled into the bundle.
_ALLOWED = frozenset(
    {"prim.if_then_else", "prim.likely", "prim.log2", "prim.ceil"}
    | {
        f"tirx.{name}"
        for name in (
            *("reinterpret", "floor", "round", "trunc", "nearbyint", "fabs", "fmod", "copysign"),
            *("isfinite", "isinf", "isnan", "popcount"),
            *("exp", "exp2", "exp10", "erf", "log", "log10", "log1p", "pow", "rsqrt", "sigmoid", "sqrt"),
            *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh"),
            *("cos", "cosh", "sin", "sinh", "tan", "tanh", "hypot"),
        )
    }
)


def others(module: tvm.IRModule) -> dict[Any, Any]:
    """All functions of a module but `main`."""
    return {name: function for name, function in module.functions.items() if name.name_hint != "main"}


def check_functions(module: tvm.IRModule) -> None:
    """Refuse a module with functions that do more than compute on tensors.

    Raises:
        ValueError: `main` is no function of relax, another one is not of loops, or calls what it may not.
    """
    if not isinstance(module["main"], relax.Function):
        raise ValueError("no function")
    for name, function in others(module).items():
        if not isinstance(function, tirx.PrimFunc):
            raise ValueError(f"{name.name_hint} is a function of another kind")
        called: list[str] = []
        tvm_ffi.structural_walk(
            function.body, (tvm.ir.Call, lambda call, names=called: names.append(_callee(call)))
        )
        if foreign := sorted(set(called) - _ALLOWED):
            raise ValueError(f"{name.name_hint} calls {foreign[0]}")


def _callee(call: Any) -> str:
    return str(getattr(call.op, "name", call.op))
