"""Names within expressions that stand for much: they become vectors on the stack.

TVM's code generator tells its simplifier what every name stands for, and the simplifier puts that in place of
each use. Where functions that are written with names follow one another (the polynomials of exp, of a
logarithm and of tanh, as in Mish), what it walks through grows by a factor with each of them: 14 seconds for
four vectors. What lies in memory means nothing to it, and LLVM takes it into registers again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx

from host.tensor_ir.structural import mapped

# Nodes that an expression may have, with what its names stand for in the place of each use.
_MOST_NODES = 4096
# Only one of its values is computed: a name within stays where it is.
_LAZY = "prim.if_then_else"


class _Named(NamedTuple):
    """A name and what it stands for, in which further names are left as variables."""

    variable: Any
    value: Any


def without_nested_names(body: tirx.Stmt, annotations: Mapping[str, Any]) -> tirx.Stmt:
    """The same, with the names of expressions that stand for too much as buffers of their own.

    Args:
        body: of a function whose allocations are lowered already.
        annotations: of a buffer on the stack.
    """

    def stored(store: tirx.BufferStore) -> tirx.Stmt:
        value, names = _apart(store.value)
        if not names or _written_out(value, names) <= _MOST_NODES or not _can_be_stored(store.value, names):
            return store
        lines: list[tirx.Stmt] = []
        loads: list[_Named] = []
        for name in names:
            kind = tvm_ffi.dtype(str(name.variable.ty.dtype))
            shape, element = (kind.lanes,), str(kind).split("x", maxsplit=1)[0]
            buffer = tirx.decl_buffer(shape, element, name.variable.name, scope="local", layout=None)
            index = tirx.Ramp(0, 1, kind.lanes) if kind.lanes > 1 else tirx.const(0, "int32")
            lines += [
                tirx.AllocBuffer(buffer, annotations),
                tirx.BufferStore(buffer, _replaced(name.value, loads), [index]),
            ]
            loads.append(_Named(name.variable, tirx.BufferLoad(buffer, [index])))
        made = _replaced(value, loads)
        last = tirx.BufferStore(store.buffer, made, list(store.indices), store.span)
        return tirx.SeqStmt([*lines, last])

    return mapped(body, (tirx.BufferStore, stored))


def is_lazy(call: tvm.ir.Call) -> bool:
    """Whether only one of its values is computed."""
    return getattr(call.op, "name", "") == _LAZY


def _apart(value: Any) -> tuple[Any, list[_Named]]:
    """An expression without names, and the names in an order in which each stands before its uses."""
    found: list[_Named] = []

    def taken(name: tirx.Let) -> Any:
        found.append(_Named(name.var, name.value))
        return name.body

    body = mapped(value, (tirx.Let, taken))
    ordered: list[_Named] = []

    def add(name: _Named) -> None:
        if not any(one.variable.same_as(name.variable) for one in ordered):
            used = tirx.analysis.undefined_vars(name.value)
            for other in found:
                if any(other.variable.same_as(variable) for variable in used):
                    add(other)
            ordered.append(name)

    for name in found:
        add(name)
    return body, ordered


def _replaced(value: Any, names: Sequence[_Named]) -> Any:
    """An expression with names replaced by what they stand for."""

    def of(variable: Any) -> Any:
        return next((name.value for name in names if name.variable.same_as(variable)), variable)

    return mapped(value, (tirx.Var, of))


def _can_be_stored(value: Any, names: Sequence[_Named]) -> bool:
    """Whether all names are numbers, each with one value, and computed whatever a condition says."""
    values: list[_Named] = []
    lazy: list[tvm.ir.Call] = []

    def visit_name(name: tirx.Let) -> None:
        values.append(_Named(name.var, name.value))

    def visit_call(call: tvm.ir.Call) -> None:
        if is_lazy(call):
            lazy.append(call)

    tvm_ffi.structural_walk(value, ((tirx.Let, visit_name), (tvm.ir.Call, visit_call)), order="post")
    own = [[one.value for one in values if one.variable.same_as(name.variable)] for name in names]
    same = all(tvm_ffi.structural_equal(one, ones[0]) for ones in own for one in ones)
    numbers = all(str(name.variable.ty.dtype).startswith(("float", "int", "uint")) for name in names)
    return same and numbers and not any(_apart(call)[1] for call in lazy)


def _written_out(body: Any, names: Sequence[_Named]) -> int:
    """Nodes of an expression with what its names stand for in the place of each use."""
    sizes: list[int] = []

    def size_of(value: Any) -> int:
        count = 0

        def visit(node: Any) -> None:
            nonlocal count
            known = zip(names, sizes, strict=False)
            count += next((size for name, size in known if name.variable.same_as(node)), 1)

        tvm_ffi.structural_walk(value, (tvm.ir.Expr, visit), order="post")
        return count

    for name in names:
        sizes.append(size_of(name.value))
    return size_of(body)
