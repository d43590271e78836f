"""Loops in which a load starts again after a power of two of iterations, so that LLVM compiles them right.

The loop vectoriser of LLVM 22 takes the address of such a load for one that goes on, where it vectorises
loads with a step together (`out[i] = x[(i & 3) * 5]` on processors with scatters; llvm-project issue 156849),
and reads behind the last period. Split at the period, the remainder is gone: the index is linear in the inner
loop, and does not change with the outer one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.tensor_ir.structural import mapped

# Iterations that are written out where a period does not begin with its loop, so that a remainder is left.
_MOST_WRITTEN_OUT = 256


def has_periodic_loads(function: tirx.PrimFunc) -> bool:
    """Whether a loop of a lowered function has a load whose address starts again at a power of two."""
    bound: dict[Any, Any] = {}
    tvm_ffi.structural_walk(function.body, (tirx.Bind, lambda bind: bound.update({bind.var: bind.value})))
    remainders: list[tirx.FloorMod] = []
    tvm_ffi.structural_walk(function.body, (tirx.FloorMod, remainders.append))
    if not any(map(_divisor, remainders)):
        return False
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(function.body, (tirx.For, loops.append))
    loads: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tvm.ir.TensorLoad, loads.append))
    # A load is looked at once, for the loops whose variables its remainders use, and not again in each loop
    # around it: unrolled code has thousands of loads.
    for index in (_expanded(index, bound) for load in loads for index in load.indices):
        for variable in _starting_again(index):
            of_loop = any(loop.loop_var.same_as(variable) for loop in loops)
            if of_loop and _period_of(index, variable):
                return True
    return False


def _starting_again(index: Any) -> list[Any]:
    """The variables in the terms of an index that start again at a power of two, each once."""
    found: list[Any] = []

    def take(variable: Any) -> None:
        if not any(variable.same_as(other) for other in found):
            found.append(variable)

    for remainder in _remainders(index):
        if _divisor(remainder):
            tvm_ffi.structural_walk(remainder.a, (tvm.ir.Var, take))
    return found


def split_at_periods(module: tvm.IRModule) -> tvm.IRModule:
    """The same lowered functions, before common subexpressions have names, without such loads in loops."""
    simplify = tirx.transform.StmtSimplify()
    split = simplify(_mapped_loops(module, _split))
    # Iterations that are written out define the same variables again.
    return tirx.transform.ConvertSSA()(_mapped_loops(split, _written_out))


def _mapped_loops(module: tvm.IRModule, rewrite: Any) -> tvm.IRModule:
    functions = {
        variable: function.with_body(mapped(function.body, (tirx.For, rewrite)))
        for variable, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _split(loop: tirx.For) -> tirx.Stmt:
    """The loop as one over whole periods around one over the iterations of a period."""
    period, extent = _period(loop), _number(loop.extent)
    if not period or extent is None or period >= extent:
        return loop
    variable, dtype = loop.loop_var, _dtype(loop.loop_var)
    outer, inner = tirx.Var(f"{variable.name}_0", dtype), tirx.Var(f"{variable.name}_1", dtype)
    place = outer * tirx.IntImm(dtype, period) + inner
    body = _substituted(loop.body, variable, place)
    if extent % period:
        body = tirx.IfThenElse(place < tirx.IntImm(dtype, extent), body, None)
    zero = tirx.IntImm(dtype, 0)
    body = tirx.For(inner, zero, tirx.IntImm(dtype, period), tirx.ForKind.SERIAL, body)
    return tirx.For(
        outer, zero, tirx.IntImm(dtype, -(-extent // period)), loop.kind, body, None, loop.annotations
    )


def _written_out(loop: tirx.For) -> tirx.Stmt:
    """The iterations one after the other where a load still starts again among them."""
    extent = _number(loop.extent)
    if extent is None or extent > _MOST_WRITTEN_OUT or not _period(loop):
        return loop
    dtype = _dtype(loop.loop_var)
    places = (tirx.IntImm(dtype, number) for number in range(extent))
    return tirx.SeqStmt([_substituted(loop.body, loop.loop_var, place) for place in places])


def _substituted(body: Any, variable: Any, value: Any) -> Any:
    return mapped(body, (tvm.ir.Var, lambda found: value if found.same_as(variable) else found))


def _period(loop: tirx.For) -> int:
    """Iterations after which all loads of a loop that start again have done so; 0 without such loads."""
    found = 0
    loads: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (tvm.ir.TensorLoad, loads.append))
    for load in loads:
        for index in load.indices:
            found = max(found, _period_of(index, loop.loop_var))
    return found


def _period_of(index: Any, variable: Any) -> int:
    """After how many steps of a variable an index starts again; 0 where it goes on, or does not change."""
    found, covered = 0, 0
    for remainder in _remainders(index):
        step = _step(remainder.a, variable)
        divisor = _divisor(remainder)
        if divisor and step:
            covered += _uses(remainder, variable)
            found = max(found, divisor // math.gcd(step, divisor))
    # Used outside of the remainders too, the index is no linear one to LLVM.
    return found if covered == _uses(index, variable) else 0


def _remainders(index: Any) -> Iterator[tirx.FloorMod]:
    """The terms `a % b` of an index that lie in no other such term."""
    if isinstance(index, tirx.FloorMod):
        yield index
    elif isinstance(index, tirx.Add | tirx.Sub | tirx.Mul):
        yield from _remainders(index.a)
        yield from _remainders(index.b)


def _divisor(remainder: tirx.FloorMod) -> int:
    """The divisor if it is a power of two, otherwise 0."""
    number = _number(remainder.b)
    return number if number is not None and number > 1 and number.bit_count() == 1 else 0


def _step(expression: Any, variable: Any) -> int | None:
    """By how much a linear expression grows with each step of a variable; None where it is not linear."""
    if isinstance(expression, tvm.ir.Var):
        return int(expression.same_as(variable))
    if isinstance(expression, tirx.Add | tirx.Sub):
        a, b = _step(expression.a, variable), _step(expression.b, variable)
        sign = 1 if isinstance(expression, tirx.Add) else -1
        return None if a is None or b is None else a + sign * b
    if isinstance(expression, tirx.Mul):
        factor, step = _number(expression.b), _step(expression.a, variable)
        return None if factor is None or step is None else factor * step
    return None if _uses(expression, variable) else 0


def _uses(expression: Any, variable: Any) -> int:
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tvm.ir.Var, found.append))
    return sum(one.same_as(variable) for one in found)


def _expanded(index: Any, bound: dict[Any, Any]) -> Any:
    """An index with names replaced by their values."""
    if not bound:
        return index
    return mapped(
        index, (tvm.ir.Var, lambda found: _expanded(bound[found], bound) if found in bound else found)
    )


def _number(expression: Any) -> int | None:
    return int(expression.value) if isinstance(expression, tirx.IntImm) else None


def _dtype(variable: Any) -> str:
    return str(variable.ty.dtype if hasattr(variable.ty, "dtype") else variable.ty)
