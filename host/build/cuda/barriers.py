"""Barriers behind what one thread of a row leaves in shared memory for the others.

TVM leaves a barrier out where the place of a value in shared memory is that of a `threadIdx.y`: it takes all
threads of a row for the one that wrote. The values are results of reductions across `threadIdx.x`, and what
one thread computes of them for its row. Others then read what was there before, or, within a warp, what the
compiler has read before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from host.tensor_ir.structural import mapped


def with_barriers(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A scheduled function with a barrier behind each statement that leaves a value of a row to its threads.

    Args:
        function: with its loops bound to blocks and threads, before it is lowered.
    """

    def separated(sequence: tirx.SeqStmt) -> tirx.SeqStmt:
        parts: list[Any] = []
        for part in sequence.seq:
            parts.append(part)
            if _leaves_value_of_row(part):
                parts.append(tirx.Evaluate(tirx.op.tvm_storage_sync("shared")))
        return tirx.SeqStmt(parts) if len(parts) > len(sequence.seq) else sequence

    return function.with_body(mapped(function.body, (tirx.SeqStmt, separated)))


def _leaves_value_of_row(statement: Any) -> bool:
    """Whether a statement writes to a place in shared memory that is the same for all threads of a row."""
    across: list[Any] = []
    found: list[bool] = []

    def loop(one: tirx.For) -> None:
        if one.kind == tirx.ForKind.THREAD_BINDING and one.thread_binding.thread_tag == "threadIdx.x":
            across.append(one.loop_var)

    def block(realised: Any) -> None:
        one = realised.block
        axes = zip(one.iter_vars, realised.iter_values, strict=True)
        own = [*across, *(axis.var for axis, value in axes if _uses_any(value, across))]
        for written in one.writes:
            if written.source.scope() == "shared":
                found.append(not any(_uses_any(part.min, own) for part in written.region))

    tvm_ffi.structural_walk(statement, (tirx.For, loop), order="pre")
    if across:
        tvm_ffi.structural_walk(statement, (s_tir.SBlockRealize, block), order="pre")
    return any(found)


def _uses_any(value: Any, variables: Sequence[Any]) -> bool:
    used: list[Any] = []
    tvm_ffi.structural_walk(value, (tvm.ir.Var, used.append), order="pre")
    return any(one.same_as(variable) for one in used for variable in variables)
