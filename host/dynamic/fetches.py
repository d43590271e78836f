"""Prefetches, kept apart while loops over tiles are rewritten.

A prefetch counts the iterations of the nest around it, whatever these compute: its variables are those of the
loops, not places in a buffer, and stay so when the loops' tiles move.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.tensor_ir.structural import mapped


def apart(body: Any) -> tuple[Any, dict[Any, Any]]:
    """The body with variables of their own in its prefetches, and these by the variable of the loop."""
    loops: list[Any] = []
    tvm_ffi.structural_walk(body, (tirx.For, lambda loop: loops.append(loop.loop_var)))
    own: dict[Any, Any] = {}

    def renamed(variable: Any) -> Any:
        if not any(variable.same_as(loop) for loop in loops):
            return variable
        if variable not in own:
            own[variable] = tirx.Var(f"{variable.name}_number", str(variable.ty.dtype))
        return own[variable]

    def statement(found: Any) -> Any:
        return mapped(found, (tirx.Var, renamed)) if _is_prefetch(found) else found

    def condition(found: Any) -> Any:
        if not _only_prefetches(found.then_case):
            return found
        test = mapped(found.condition, (tirx.Var, renamed))
        return tirx.IfThenElse(test, found.then_case, found.else_case)

    return mapped(body, (tirx.Evaluate, statement), (tirx.IfThenElse, condition)), own


def joined(body: Any, own: dict[Any, Any]) -> Any:
    """The body with the prefetches' variables bound to those of the loops."""

    def loop(found: Any) -> Any:
        name = next((new for old, new in own.items() if found.loop_var.same_as(old)), None)
        if name is None:
            return found
        inside = tirx.SeqStmt([tirx.Bind(name, found.loop_var), found.body])
        return tirx.For(
            found.loop_var,
            found.min,
            found.extent,
            found.kind,
            inside,
            found.thread_binding,
            found.annotations,
        )

    return mapped(body, (tirx.For, loop))


def _is_prefetch(statement: Any) -> bool:
    """Whether it calls LLVM for what it does and not for a value: nothing else of ours does."""
    if not isinstance(statement, tirx.Evaluate) or not isinstance(statement.value, tvm.ir.Call):
        return False
    return str(statement.value.op.name) == "tirx.call_llvm_intrin"


def _only_prefetches(statement: Any) -> bool:
    if isinstance(statement, tirx.SeqStmt):
        return all(_only_prefetches(part) for part in statement.seq)
    if isinstance(statement, tirx.For):
        return _only_prefetches(statement.body)
    return _is_prefetch(statement)
