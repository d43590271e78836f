"""Programs over a length on several threads: the outermost loops over tiles run in parallel.

Tiles are made to overlap in programs of one thread: in those of several, the parallel loop is the product of
several loops, and a product of loops over tiles is no loop over tiles. Threads share the loops here, after
the tiles overlap. Two threads may then write the same elements, with the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm.sym
import tvm_ffi
from tvm import tirx

from host.tensor_ir.structural import mapped

# Chunks for each thread at least, as in programs of one length: the last chunk delays the others little.
CHUNKS = 8


def parallelised(
    function: tirx.PrimFunc, length: tirx.Var, shortest_length: int, threads: int
) -> tirx.PrimFunc:
    """The function with its outermost loops shared among threads.

    Args:
        function: plain loops over tiles, for one thread.
        length: the variable, int32.
        shortest_length: that the function takes: at that length there have to be chunks enough.
        threads: that share a call; with one, the function is returned as it is.
    """
    if threads <= 1:
        return function
    body = _statement(function.body, (length, shortest_length), CHUNKS * threads)
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def _statement(statement: Any, at: tuple[tirx.Var, int], enough: int) -> Any:
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_statement(part, at, enough) for part in statement.seq])
    return _shared(statement, at, enough) if isinstance(statement, tirx.For) else statement


def _shared(nest: tirx.For, at: tuple[tirx.Var, int], enough: int) -> Any:
    """The nest with as many of its outermost loops in one parallel loop as make enough chunks."""
    loops: list[tirx.For] = []
    # Names that the loops bind on the way, and where each stands: after so many loops.
    bindings: list[tuple[int, tirx.Bind]] = []
    chunks, body = 1, nest
    while isinstance(body, tirx.For) and chunks < enough and _is_shareable(body, loops, bindings):
        loops.append(body)
        chunks *= _extent(body, *at)
        body = body.body
        while isinstance(body, tirx.SeqStmt) and len(body.seq) == 2 and isinstance(body.seq[0], tirx.Bind):
            bindings.append((len(loops), body.seq[0]))
            body = body.seq[1]
    if not loops or all(_is_one(loop.extent) for loop in loops):
        return nest
    if len(loops) == 1:
        [loop] = loops
        return _parallel(loop.loop_var, loop.extent, loop.body)
    number = tirx.Var("chunk", "int32")
    statements: list[Any] = []
    for position, loop in enumerate(loops):
        inside = _product([other.extent for other in loops[position + 1 :]])
        place = tirx.floordiv(number, inside) if inside is not None else number
        if position:
            place = tirx.floormod(place, loop.extent)
        statements.append(tirx.Bind(loop.loop_var, place))
        statements += [bind for after, bind in bindings if after == position + 1]
    total = _product([loop.extent for loop in loops])
    return _parallel(number, total, tirx.SeqStmt([*statements, body]))


def _parallel(variable: tirx.Var, extent: Any, body: Any) -> tirx.For:
    return tirx.For(variable, tirx.IntImm("int32", 0), extent, tirx.ForKind.PARALLEL, body)


def _product(extents: Sequence[Any]) -> Any:
    """The product; None of nothing."""
    made: Any = None
    for extent in extents:
        made = extent if made is None else made * extent
    return made


def _extent(loop: tirx.For, length: tirx.Var, shortest_length: int) -> int:
    """Iterations of a loop at the shortest length; 1 where they depend on more than the length."""
    number = tirx.IntImm("int32", shortest_length)
    extent = mapped(loop.extent, (tirx.Var, lambda name: number if name.same_as(length) else name))
    value = tvm.sym.Analyzer().simplify(extent)
    return max(1, int(value)) if isinstance(value, tirx.IntImm) else 1


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def _is_shareable(
    loop: tirx.For, loops: Sequence[tirx.For], bindings: Sequence[tuple[int, tirx.Bind]]
) -> bool:
    """Whether iterations may run at once, and how many there are is known before the loops around it run."""
    names = [*(outer.loop_var for outer in loops), *(bind.var for _, bind in bindings)]
    if loop.kind != tirx.ForKind.SERIAL or not _is_zero(loop.min):
        return False
    return not any(uses(loop.extent, name) for name in names) and dependent_buffer(loop) is None


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == 0


def uses(node: Any, variable: tirx.Var) -> bool:
    """Whether the variable stands anywhere in a statement or expression."""
    found = False

    def visit(other: Any) -> None:
        nonlocal found
        found = found or other.same_as(variable)

    tvm_ffi.structural_walk(node, (tirx.Var, visit))
    return found


def dependent_buffer(loop: tirx.For) -> str | None:
    """The name of a buffer through which the iterations of a loop depend on one another; None without one.

    Every buffer from outside that is written has to be indexed by the loop's variable, or by a name that is
    bound to an expression of it, and not be added to.
    """
    inside: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (tirx.AllocBuffer, lambda node: inside.append(node.buffer)))
    moving = [loop.loop_var]

    def follow(bind: tirx.Bind) -> None:
        if any(uses(bind.value, variable) for variable in moving):
            moving.append(bind.var)

    tvm_ffi.structural_walk(loop.body, (tirx.Bind, follow), order="pre")
    faults: list[str] = []

    def visit(store: tirx.BufferStore) -> None:
        if any(store.buffer.same_as(buffer) for buffer in inside):
            return
        indexed = any(uses(index, variable) for index in store.indices for variable in moving)
        if not indexed or uses(store.value, store.buffer):
            faults.append(store.buffer.name)

    tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, visit))
    return faults[0] if faults else None
