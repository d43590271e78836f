"""Several programs of one function as one: which runs is decided by the length, in the generated code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from host.tensor_ir.structural import mapped


@dataclass(frozen=True)
class Run:
    """Neighbouring lengths that the same program serves.

    Attributes:
        last: the greatest of them.
        program: its number.
    """

    last: int
    program: int


def runs_of(choices: Sequence[int], low: int) -> tuple[Run, ...]:
    """The runs in a list of programs, one for each length from `low` on."""
    runs: list[Run] = []
    for offset, program in enumerate(choices):
        if runs and runs[-1].program == program:
            runs.pop()
        runs.append(Run(low + offset, program))
    return tuple(runs)


def dispatched(functions: Sequence[tirx.PrimFunc], runs: Sequence[Run], length: tirx.Var) -> tirx.PrimFunc:
    """One function that runs the program of the length it is called with.

    Args:
        functions: programs over the same variable, with the same parameters.
        runs: in order, over the whole range.
        length: the variable.
    """
    first = functions[0]
    bodies = [first.body, *(_with_parameters(function, first) for function in functions[1:])]
    if len(functions) == 1:
        return first
    # The number goes through memory: as a value, TVM's passes would carry all its comparisons into every
    # bound of every program, and lowering would take ten times as long. LLVM sees through it.
    number = tirx.decl_buffer((1,), "int32", name="program", scope="local", layout=None)
    chain: Any = bodies[-1]
    for index in range(len(bodies) - 2, -1, -1):
        chain = tirx.IfThenElse(tirx.EQ(number[0], tirx.IntImm("int32", index)), bodies[index], chain)
    store = tirx.BufferStore(number, _number(runs, length), [0])
    body = tirx.SeqStmt([tirx.AllocBuffer(number), store, chain])
    return tirx.PrimFunc(first.params, body, first.ret_type, first.attrs)


def _with_parameters(function: tirx.PrimFunc, first: tirx.PrimFunc) -> Any:
    """The body of a function on the parameters of another."""
    pairs = list(zip(function.params, first.params, strict=True))

    def visit(variable: tirx.Var) -> Any:
        return next((new for old, new in pairs if variable.same_as(old)), variable)

    return mapped(function.body, (tirx.Var, visit))


def _number(runs: Sequence[Run], length: tirx.Var) -> Any:
    """The number of the program as a balanced tree of comparisons."""
    if len(runs) == 1:
        return tirx.IntImm("int32", runs[0].program)
    middle = len(runs) // 2
    left, right = _number(runs[:middle], length), _number(runs[middle:], length)
    return tirx.Select(tirx.LE(length, tirx.IntImm("int32", runs[middle - 1].last)), left, right)
