"""Vectors whose elements are all there or all missing, in place of vectors of which the last is not full.

Weights are filled up to whole vectors, results are not: of 104 columns the seventh vector of 16 has 8. TVM
makes such a loop a loop over elements, each with a condition. LLVM makes vectors of these again where it
knows that no two buffers overlap, and not in a loop that threads share. Where a shorter vector divides the
bound and where it begins, the condition is the same for all of its elements, and stands around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from host.tensor_ir.structural import mapped

# Iterations that differ in conditions become loops of their own: TVM's annotation.
_PARTED = "pragma_loop_partition_hint"
# Elements of the shortest vector that is worth it.
_SHORTEST = 4


def with_shared_conditions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function with shorter vectors where they share their conditions.

    Loops over vectors that TVM parts at the bound keep theirs: all but the last vector are whole there.
    """
    parted: list[Any] = []

    def note(loop: tirx.For) -> None:
        if _PARTED in loop.annotations:
            parted.append(loop.loop_var)

    tvm_ffi.structural_walk(function.body, (tirx.For, note))
    return function.with_body(mapped(function.body, (tirx.For, lambda loop: _narrowed(loop, parted))))


def _narrowed(loop: tirx.For, parted: Sequence[Any]) -> tirx.For:
    realised = loop.body
    whole = loop.kind == tirx.ForKind.VECTORIZED and isinstance(loop.extent, tirx.IntImm)
    if not whole or not isinstance(realised, s_tir.SBlockRealize):
        return loop
    lanes = int(loop.extent)
    length = math.gcd(lanes, *(_step(one, loop.loop_var, parted) for one in _parts(realised.predicate)))
    if not _SHORTEST <= length < lanes:
        return loop
    outer, inner = (tirx.Var(f"{loop.loop_var.name}_{name}", str(loop.loop_var.ty.dtype)) for name in "vl")
    place = outer * length + inner
    values = [_replaced(value, loop.loop_var, place) for value in realised.iter_values]
    condition = _replaced(realised.predicate, loop.loop_var, place)
    body = s_tir.SBlockRealize(values, condition, realised.block)
    vector = tirx.For(inner, 0, length, tirx.ForKind.VECTORIZED, body)
    return tirx.For(outer, 0, lanes // length, tirx.ForKind.UNROLLED, vector)


def with_short_last_vectors(body: tirx.Stmt) -> tirx.Stmt:
    """The same, behind LoopPartition, with the vector that a bound cuts as shorter ones without a condition.

    Where a part is the last vector alone, its condition has no variable but the element's. As a loop over
    elements, LLVM takes up to thirty times as long to compile a window of a convolution with it.
    """
    return mapped(body, (tirx.For, _cut))


def _cut(loop: tirx.For) -> tirx.Stmt:
    choice = loop.body
    whole = loop.kind == tirx.ForKind.VECTORIZED and isinstance(loop.extent, tirx.IntImm)
    if not whole or not isinstance(choice, tirx.IfThenElse) or choice.else_case is not None:
        return loop
    left = _elements_left(choice.condition, loop.loop_var)
    if left is None or not 0 < left < int(loop.extent) or left % _SHORTEST:
        return loop
    vectors: list[tirx.Stmt] = []
    begin = 0
    while begin < left:
        # Powers of two, as vectors are.
        length = 1 << ((left - begin).bit_length() - 1)
        element = tirx.Var(loop.loop_var.name, str(loop.loop_var.ty.dtype))
        statement = _replaced(choice.then_case, loop.loop_var, element + begin)
        vectors.append(tirx.For(element, loop.min, length, tirx.ForKind.VECTORIZED, statement))
        begin += length
    return vectors[0] if len(vectors) == 1 else tirx.SeqStmt(vectors)


def _elements_left(condition: Any, element: Any) -> int | None:
    """How many elements of a vector a bound leaves; None where this depends on more than the element."""
    if not isinstance(condition, tirx.LT) or not isinstance(condition.b, tirx.IntImm):
        return None
    used: list[Any] = []
    tvm_ffi.structural_walk(condition, (tirx.Var, used.append))
    if len(used) != 1 or not used[0].same_as(element) or not _is_term(condition.a, element):
        return None
    start = _number(_replaced(condition.a, element, tirx.IntImm(str(element.ty.dtype), 0)))
    return None if start is None else int(condition.b) - start


def _number(index: Any) -> int | None:
    """The value of sums and products of numbers."""
    if isinstance(index, tirx.IntImm):
        return int(index)
    operation = {tirx.Add: int.__add__, tirx.Mul: int.__mul__}.get(type(index))
    if operation is None:
        return None
    a, b = _number(index.a), _number(index.b)
    return None if a is None or b is None else operation(a, b)


def _replaced(index: Any, variable: Any, value: Any) -> Any:
    return mapped(index, (tirx.Var, lambda found: value if found.same_as(variable) else found))


def _parts(condition: Any) -> list[Any]:
    """The conditions that have to hold together."""
    if isinstance(condition, tirx.And):
        return [*_parts(condition.a), *_parts(condition.b)]
    return [condition]


def _step(condition: Any, variable: Any, parted: Sequence[Any]) -> int:
    """Elements that a condition is the same for, from multiples of it on; 0: for all."""
    used: list[Any] = []
    tvm_ffi.structural_walk(condition, (tirx.Var, used.append))
    if not any(one.same_as(variable) for one in used):
        return 0
    if any(one.same_as(other) for one in used for other in parted):
        return 1
    if not isinstance(condition, tirx.LT) or not isinstance(condition.b, tirx.IntImm):
        return 1
    if sum(one.same_as(variable) for one in used) > 1 or not _is_term(condition.a, variable):
        return 1
    start = _replaced(condition.a, variable, tirx.IntImm(str(variable.ty.dtype), 0))
    return math.gcd(int(condition.b), _divisor(start))


def _is_term(index: Any, variable: Any) -> bool:
    """Whether a variable is added to the rest of an index as it is."""
    if isinstance(index, tirx.Add):
        return _is_term(index.a, variable) or _is_term(index.b, variable)
    return bool(index.same_as(variable))


def _divisor(index: Any) -> int:
    """A number that divides an index whatever its variables are; 0 where it is 0."""
    if isinstance(index, tirx.IntImm):
        return abs(int(index))
    if isinstance(index, tirx.Add | tirx.Sub):
        return math.gcd(_divisor(index.a), _divisor(index.b))
    if isinstance(index, tirx.Mul):
        return _divisor(index.a) * _divisor(index.b)
    return 1
