"""Barriers behind values of a row that one of its threads leaves for the others.

These are sums and maxima that the threads have found together, and what one of them computes from these, as
the scale of a norm. TVM leaves the barrier out where the value's place in shared memory is that of a
`threadIdx.y`: it takes all threads of a row for the one that wrote. Others then read what was there before,
or, within a warp, what the compiler has read before.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from host.tensor_ir.structural import mapped

_REDUCE = 2  # tirx.IterVar.CommReduce


def with_barriers(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A scheduled function with a barrier behind each value of a row of threads that is shared.

    Args:
        function: with its loops bound to blocks and threads, before it is lowered.
    """

    def separated(sequence: tirx.SeqStmt) -> tirx.SeqStmt:
        parts: list[Any] = []
        for part in sequence.seq:
            parts.append(part)
            if _leaves_result(part):
                parts.append(tirx.Evaluate(tirx.op.tvm_storage_sync("shared")))
        return tirx.SeqStmt(parts) if len(parts) > len(sequence.seq) else sequence

    return function.with_body(mapped(function.body, (tirx.SeqStmt, separated)))


def _leaves_result(statement: Any) -> bool:
    """Whether a statement leaves in shared memory what threads reduce together, or what one of them makes."""
    across: list[Any] = []
    found: list[bool] = []

    def loop(one: tirx.For) -> None:
        if one.kind == tirx.ForKind.THREAD_BINDING and one.thread_binding.thread_tag == "threadIdx.x":
            across.append(one.loop_var)

    def block(realised: Any) -> None:
        one = realised.block
        if across and one.writes and one.writes[0].source.scope() == "shared":
            kinds = {
                int(axis.iter_type) == _REDUCE
                for axis, value in zip(one.iter_vars, realised.iter_values, strict=True)
                if any(_uses(value, variable) for variable in across)
            }
            # An element of a copy belongs to the thread that makes it, a value without one to the row.
            found.append(True in kinds or not kinds)

    tvm_ffi.structural_walk(statement, (tirx.For, loop), order="pre")
    tvm_ffi.structural_walk(statement, (s_tir.SBlockRealize, block), order="pre")
    return any(found)


def _uses(value: Any, variable: Any) -> bool:
    used: list[Any] = []
    tvm_ffi.structural_walk(value, (tvm.ir.Var, used.append), order="pre")
    return any(one.same_as(variable) for one in used)
