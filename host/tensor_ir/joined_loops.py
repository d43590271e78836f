"""Parts of a partitioned loop whose borders depend on a loop around them, as one loop with a choice in it.

Where threads share bands of rows, only the first and the last band have a border, so that TVM's LoopPartition
makes loops of max(1 - p, 0), min(13 - 7 p, 7) - max(1 - p, 0) and 7 p - 6 iterations for a band p of 7 rows.
LLVM then expresses the address of each element by these minima and maxima: half of the time in which it
compiles a depthwise convolution goes there. A loop of 7 iterations that tests which part it is in runs the
same statements.

Where a part has one iteration, LoopPartition writes the number 0 of 32 bits in place of its variable, also in
a loop of 64 bits, as loops stay whose indices are computed in int64; later passes refuse `0 + T.int64(3)`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.tensor_ir.structural import mapped

# Iterations of the loop around the parts for which their sizes are computed.
_MOST_VALUES = 1024

_OF_TWO = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod, tirx.Min, tirx.Max),
    *(tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE),
)


def with_wide_numbers(body: tirx.Stmt) -> tirx.Stmt:
    """The same with whole numbers of 32 bits widened beside operands of 64 bits."""

    def widened(operation: Any) -> Any:
        types = {_dtype(operation.a), _dtype(operation.b)}
        if types == {"int32", "int64"}:
            return type(operation)(_wide(operation.a), _wide(operation.b))
        # The operation around one that was widened still has the type of its operands before.
        kept = isinstance(operation, _OF_TWO[:9]) and {_dtype(operation)} | types == {"int32", "int64"}
        return type(operation)(operation.a, operation.b) if kept else operation

    return mapped(body, (_OF_TWO, widened))


def _wide(value: Any) -> Any:
    if _dtype(value) == "int64":
        return value
    is_number = isinstance(value, tirx.IntImm)
    return tirx.IntImm("int64", int(value.value)) if is_number else tirx.Cast("int64", value)


def with_joined_loops(body: tirx.Stmt) -> tirx.Stmt:
    """The same with such parts joined where there are as many iterations in all for each turn around them."""
    around: list[tirx.For] = []
    tvm_ffi.structural_walk(body, (tirx.For, around.append))

    def joined(sequence: tirx.SeqStmt) -> tirx.Stmt:
        statements, made = list(sequence.seq), []
        while statements:
            parts = _parts(statements)
            loop = _joined(parts, around) if len(parts) > 1 else None
            made.append(loop or statements[0])
            del statements[: len(parts) if loop is not None else 1]
        return made[0] if len(made) == 1 else tirx.SeqStmt(made)

    return mapped(body, (tirx.SeqStmt, joined))


def _parts(statements: Sequence[tirx.Stmt]) -> list[tirx.For]:
    """The loops at the beginning whose numbers of iterations are computed."""
    found: list[tirx.For] = []
    for statement in statements:
        if not isinstance(statement, tirx.For) or statement.kind != tirx.ForKind.SERIAL:
            break
        if statement.annotations or statement.step is not None:
            break
        if isinstance(statement.extent, tirx.IntImm) or not _is(statement.min, 0):
            break
        found.append(statement)
    return found


def _joined(parts: Sequence[tirx.For], around: Sequence[tirx.For]) -> tirx.For | None:
    """One loop over the iterations of all parts; None where their number is not known, or not constant."""
    used: list[Any] = []
    for part in parts:
        tvm_ffi.structural_walk(part.extent, (tvm.ir.Var, used.append))
    loop = next((one for one in around if used and one.loop_var.same_as(used[0])), None)
    if loop is None or not all(used[0].same_as(variable) for variable in used) or not _is(loop.min, 0):
        return None
    if not isinstance(loop.extent, tirx.IntImm) or int(loop.extent.value) > _MOST_VALUES:
        return None
    totals = set()
    for value in range(int(loop.extent.value)):
        counts = [count for part in parts if (count := _value(part.extent, value)) is not None]
        if len(counts) < len(parts) or min(counts[:-1]) < 0:
            return None
        totals.add(sum(counts[:-1]) + max(counts[-1], 0))
    if len(totals) != 1:
        return None
    variable = parts[0].loop_var
    *before, body = _shifted(parts, variable)
    for end, other in reversed(before):
        body = tirx.IfThenElse(variable < end, other, body)
    return tirx.For(variable, parts[0].min, tirx.IntImm(_dtype(variable), totals.pop()), parts[0].kind, body)


def _shifted(parts: Sequence[tirx.For], variable: Any) -> list[Any]:
    """The ends of all parts but the last, each with the body of its part, and the body of the last.

    Args:
        parts: whose iterations are counted from the beginning of each.
        variable: that counts them from the beginning of the first.
    """
    made: list[Any] = []
    begin = parts[0].min
    for part in parts:
        place = variable if part is parts[0] else variable - begin
        body = _substituted(part.body, part.loop_var, place)
        begin = begin + part.extent
        made.append(body if part is parts[-1] else (begin, body))
    return made


def _substituted(body: tirx.Stmt, variable: Any, value: Any) -> tirx.Stmt:
    return mapped(body, (tvm.ir.Var, lambda found: value if found.same_as(variable) else found))


def _value(expression: Any, value: int) -> int | None:
    """The value of an expression of one variable; None where it has other operations than bounds have."""
    if isinstance(expression, tirx.IntImm):
        return int(expression.value)
    if isinstance(expression, tvm.ir.Var):
        return value
    operation = next((make for kind, make in _OPERATIONS.items() if isinstance(expression, kind)), None)
    if operation is None:
        return None
    a, b = _value(expression.a, value), _value(expression.b, value)
    return None if a is None or b is None else operation(a, b)


_OPERATIONS: dict[Any, Callable[[int, int], int | None]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.Min: min,
    tirx.Max: max,
    tirx.FloorDiv: lambda a, b: a // b if b else None,
    tirx.FloorMod: lambda a, b: a % b if b else None,
}


def _is(expression: Any, number: int) -> bool:
    return isinstance(expression, tirx.IntImm) and int(expression.value) == number


def _dtype(variable: Any) -> str:
    return str(variable.ty.dtype if hasattr(variable.ty, "dtype") else variable.ty)
