"""Statements of programs that are written as one nest, in the place of a function's body."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm.backend.cuda.op import cuda_func_call

_THREAD = 1  # tirx.IterVar.ThreadIndex
ROOT = "root"


def put_into(schedule: s_tir.Schedule, body: tirx.Stmt, buffers: Sequence[tirx.Buffer] = ()) -> None:
    """Puts a nest in the place of everything that the function does.

    Args:
        schedule: of the function.
        body: the nest.
        buffers: memory of the GPU that its kernels share.
    """
    root = schedule.get_sblock(ROOT)
    old = schedule.get(root)
    new = s_tir.SBlock([], [], [], old.name_hint, body, None, list(buffers), [], old.annotations)
    schedule.state.replace(schedule.get_sref(root), new)


def bound(body: tirx.Stmt, axes: Iterable[tuple[Any, int, str]]) -> tirx.Stmt:
    """A statement in loops over blocks and threads: variables, extents and axes, innermost first."""
    for variable, extent, axis in axes:
        thread = tirx.IterVar(None, tirx.Var(axis, "int32"), _THREAD, axis)
        body = tirx.For(variable, 0, extent, tirx.ForKind.THREAD_BINDING, body, thread)
    return body


def buffer(name: str, size: int, dtype: str, scope: str = "local") -> tirx.Buffer:
    """A flat buffer."""
    return tirx.decl_buffer((size,), dtype, name, scope=scope)


def sequence(statements: list[tirx.Stmt]) -> tirx.Stmt:
    """One statement after the other."""
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]


def unrolled(count: int, body: Callable[[Any], tirx.Stmt]) -> tirx.Stmt:
    """A loop that is written out; one iteration needs no loop."""
    if count == 1:
        return body(0)
    variable = tirx.Var("turn", "int32")
    return tirx.For(variable, 0, count, tirx.ForKind.UNROLLED, body(variable))


def digits(number: Any, extents: Sequence[int]) -> list[Any]:
    """The iteration of each of some axes that are numbered together, the last one fastest."""
    found: list[Any] = []
    for position, extent in reversed(list(enumerate(extents))):
        found.insert(0, number % extent if position else number)
        number = number // extent
    return found


def call(name: str, text: str, *arguments: Any) -> tirx.Stmt:
    """A call of a function of CUDA C++, whose text comes with it."""
    return tirx.Evaluate(cuda_func_call(name, *arguments, source_code=text))
