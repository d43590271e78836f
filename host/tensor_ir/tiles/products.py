"""Loop nests that are multiplied in registers of matrices: what a schedule marks becomes calls.

A nest over rows, panels of lanes and a whole sum becomes one call of a function of
`host.tensor_ir.tiles.registers`. Strides are read off its indices, so that it does not matter where they come
from: steps and dilation of a window, batches, or a copy with borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.errors import BuildError
from host.tensor_ir.structural import mapped
from host.tensor_ir.tiles.registers import (
    ALIGNED,
    GROUP_BYTES,
    RELEASED,
    ROW_BYTES,
    Function,
    Loop,
    TileProduct,
    configured,
    split_rows,
)

# Marks around the loops of a product, with its kind, and around those that set its sums to zero.
PRODUCT, START = "pragma_edgetlm_tiles", "pragma_edgetlm_tiles_start"
# Annotation of an allocation that TVM is to leave to the code generator, which takes it from the stack.
STAYS = "disable_lower_builtin"
_LANES = 16
_SUM_BYTES = 4


@dataclass(frozen=True)
class _Axis:
    """A loop of a nest, with the bytes from one iteration to the next in both operands and in the sums."""

    extent: int
    left: int
    right: int
    sums: int


@dataclass(frozen=True)
class _Nest:
    """A nest: its axes, outermost first, and the addresses of both operands and of the sums.

    Where loops around it decide whether the tile is full, `whole` is their condition, and `last_axes` are
    those of a tile that is not.
    """

    axes: tuple[_Axis, ...]
    addresses: tuple[Any, Any, Any]
    sums: Any
    whole: Any = None
    last_axes: tuple[_Axis, ...] = ()


def with_tile_products(body: tirx.Stmt) -> tirx.Stmt:
    """A body with flat buffers whose marked loops are products of tiles; itself without marks.

    Raises:
        BuildError: marked loops are none that tiles multiply.
    """
    counted: set[Any] = set()
    tvm_ffi.structural_walk(body, (tirx.For, lambda loop: counted.add(loop.loop_var)))
    products: dict[Function, TileProduct] = {}
    sums: list[Any] = []

    def replaced(mark: tirx.AttrStmt) -> tirx.Stmt:
        if mark.attr_key == START:
            return tirx.Evaluate(0)
        if mark.attr_key != PRODUCT:
            return mark
        kind, rest, ahead = str(mark.value.value).split()

        def called(nest: _Nest) -> tirx.Stmt:
            product = _product_of(kind, nest.axes, int(ahead))
            function = product.function()
            products[function] = product
            sums.append(nest.sums)
            return tirx.Evaluate(_called(function, *nest.addresses))

        nest = _nest_of(mark.body, int(rest))
        if nest.whole is None:
            return called(nest)
        if not _variables(nest.whole) <= counted:
            raise BuildError(f"tiles of rows that depend on more than loops: {nest.whole}")
        return tirx.IfThenElse(nest.whole, called(nest), called(replace(nest, axes=nest.last_axes)))

    made = mapped(body, (tirx.AttrStmt, replaced))
    if not products:
        return body
    return _with_registers(_with_aligned(made, sums), products)


def _with_aligned(body: tirx.Stmt, sums: Sequence[Any]) -> tirx.Stmt:
    """The sums of tiles in whole lines of the cache, which the stack does not give by itself.

    A register is stored line by line, and what follows loads a line at a time: both take twice as long across
    two lines.
    """
    aligned: list[tuple[Any, Any, Any]] = []

    def of(buffer: Any) -> tuple[Any, Any] | None:
        return next(((made, start) for old, made, start in aligned if old.same_as(buffer)), None)

    for buffer in sums:
        if of(buffer) is None:
            [size] = buffer.shape
            wider = tirx.decl_buffer(
                (int(size) + _LANES,), buffer.dtype, buffer.name, scope="local", layout=None
            )
            aligned.append((buffer, wider, tirx.Var(f"{buffer.name}_start", "int32")))

    def allocated(one: tirx.AllocBuffer) -> tirx.Stmt:
        found = of(one.buffer)
        if found is None:
            return one
        wider, start = found
        annotations = {**dict(one.annotations), STAYS: tirx.IntImm("bool", 1)}
        first = tirx.address_of(tirx.BufferLoad(wider, [0]))
        return tirx.SeqStmt([tirx.AllocBuffer(wider, annotations), tirx.Bind(start, _called(ALIGNED, first))])

    def loaded(load: Any) -> Any:
        found = of(load.source)
        if found is None:
            return load
        [index] = load.indices
        return tirx.BufferLoad(found[0], [index + found[1]])

    return mapped(body, (tirx.AllocBuffer, allocated), (tvm.ir.TensorLoad, loaded))


def _variables(expression: Any) -> set[Any]:
    found: set[Any] = set()
    tvm_ffi.structural_walk(expression, (tvm.ir.Var, found.add))
    return found


def _called(function: Function, *arguments: Any) -> Any:
    return tirx.call_extern("int32", function.name, *arguments)


def _with_registers(body: tirx.Stmt, products: dict[Function, TileProduct]) -> tirx.Stmt:
    """The registers configured around products, and the functions imported.

    Each thread does it for itself. Most functions have one way of configuring them; products of rows at the
    end, which are fewer, may have another.
    """
    ways = {function: configured(product.registers() or ()) for function, product in products.items()}
    # The most common one is that of the product that comes first.
    usual = next(iter(ways.values()))
    names = {function.name: way for function, way in ways.items()}

    def changed(statement: tirx.Evaluate) -> tirx.Stmt:
        way = names.get(_name(statement.value))
        if way is None or way == usual:
            return statement
        return tirx.SeqStmt([_step(way), statement, _step(usual)])

    def in_parallel(loop: tirx.For) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.PARALLEL or not _has_products(loop.body, names):
            return loop
        return tirx.For(
            loop.loop_var,
            loop.min,
            loop.extent,
            loop.kind,
            _around(loop.body, usual),
            loop.thread_binding,
            loop.annotations,
        )

    made = mapped(body, (tirx.Evaluate, changed))
    shared = mapped(made, (tirx.For, in_parallel))
    made = shared if shared is not made and _has_parallel(made, names) else _around(made, usual)
    texts = {one.name: one.text for one in (*products, *ways.values(), RELEASED, ALIGNED)}
    text = tvm.ir.StringImm(_joined([texts[name] for name in sorted(texts)]))
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, made)


def _around(body: tirx.Stmt, way: Function) -> tirx.Stmt:
    return tirx.SeqStmt([_step(way), body, _step(RELEASED)])


def _step(function: Function) -> tirx.Stmt:
    return tirx.Evaluate(_called(function))


def _joined(texts: Sequence[str]) -> str:
    """One module of several, with what several declare once."""
    seen: set[str] = set()
    lines = []
    for line in "".join(texts).split("\n"):
        if line.startswith("declare"):
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines)


def _name(value: Any) -> str:
    first = value.args[0] if isinstance(value, tvm.ir.Call) and len(value.args) else None
    return str(first.value) if isinstance(first, tvm.ir.StringImm) else ""


def _has_products(body: tirx.Stmt, names: dict[str, Function]) -> bool:
    found: list[str] = []
    tvm_ffi.structural_walk(body, (tvm.ir.Call, lambda call: found.append(_name(call))))
    return any(name in names for name in found)


def _has_parallel(body: tirx.Stmt, names: dict[str, Function]) -> bool:
    """Whether threads share products."""
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(body, (tirx.For, loops.append))
    shared = (loop for loop in loops if loop.kind == tirx.ForKind.PARALLEL)
    return any(_has_products(loop.body, names) for loop in shared)


def _nest_of(statement: tirx.Stmt, rest: int) -> _Nest:
    """The nest of marked loops around one update of a sum.

    Args:
        statement: the outermost loop.
        rest: rows of the last tile, if they are fewer than those of others.
    """
    loops: list[tirx.For] = []
    extents: list[int] = []
    whole, last = None, -1
    while isinstance(statement, tirx.For | tirx.IfThenElse):
        if isinstance(statement, tirx.For):
            loops.append(statement)
            extents.append(int(statement.extent.value))
            statement = statement.body
            continue
        number, count, condition = _within(statement.condition, loops, extents)
        if condition is None and number >= 0:
            extents[number] = count
        elif condition is not None and whole is None and 0 < rest < extents[number]:
            whole, last = condition, number
        elif condition is not None:
            raise BuildError(f"tiles multiply no such loops: {condition}")
        statement = statement.then_case
    if not isinstance(statement, tirx.BufferStore):
        raise BuildError(f"tiles multiply no such loops: {type(statement).__name__} inside of them")
    strides, addresses = _strides(statement, loops)

    def axes(counts: Sequence[int]) -> tuple[_Axis, ...]:
        every = (_Axis(count, *steps) for count, *steps in zip(counts, *strides, strict=True))
        return tuple(axis for axis in every if axis.extent > 1)

    shorter = [rest if number == last else count for number, count in enumerate(extents)]
    return _Nest(
        axes(extents), addresses, statement.buffer, whole, axes(shorter) if whole is not None else ()
    )


def _strides(
    statement: tirx.BufferStore, loops: Sequence[tirx.For]
) -> tuple[list[list[int]], tuple[Any, Any, Any]]:
    """Bytes between iterations of each loop in both operands and the sums, and their addresses."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(statement.value, (tvm.ir.TensorLoad, loads.append))
    operands = [load for load in loads if not load.source.same_as(statement.buffer)]
    if len(operands) != 2 or len(loads) != 3:
        raise BuildError(f"tiles multiply no such loops: {str(statement)[:200]}")
    places = [(load.source, load.indices) for load in operands] + [(statement.buffer, statement.indices)]
    strides, addresses = [], []
    variables = [loop.loop_var for loop in loops]
    for buffer, indices in places:
        [index] = indices
        *steps, base = tvm.sym.detect_linear_equation(index, variables) or [None]
        if base is None or len(steps) != len(loops) or not all(isinstance(s, tirx.IntImm) for s in steps):
            raise BuildError(f"tiles multiply no such loops: index {index}")
        width = tvm_ffi.dtype(str(buffer.dtype)).bits // 8
        strides.append([int(step.value) * width for step in steps])
        starts = [step * loop.min for step, loop in zip(steps, loops, strict=True)]
        addresses.append(tirx.address_of(tirx.BufferLoad(buffer, [sum(starts, base)])))
    return strides, (addresses[0], addresses[1], addresses[2])


def _within(condition: Any, loops: Sequence[tirx.For], extents: Sequence[int]) -> tuple[int, int, Any | None]:
    """Which loop a condition restricts, -1 for none, to how many iterations, or when it does not.

    It is that of a tile at the end, which is not full. Where loops around decide whether this one is, the
    condition of its last row is returned.
    """
    analyzer = tvm.sym.Analyzer()
    used: list[Any] = []
    tvm_ffi.structural_walk(condition, (tvm.ir.Var, used.append))
    for number, loop in enumerate(loops):
        if any(variable.same_as(loop.loop_var) for variable in used):
            holds = [
                analyzer.simplify(_substituted(condition, loop.loop_var, loop.min + place))
                for place in range(extents[number])
            ]
            settled = [bool(one.value) for one in holds if isinstance(one, tirx.IntImm)]
            if len(settled) < len(holds):
                return number, 0, holds[-1]
            if settled != sorted(settled, reverse=True):
                break
            return number, settled.count(True), None
    else:
        held = analyzer.simplify(condition)
        if isinstance(held, tirx.IntImm) and held.value:
            return -1, 0, None
    raise BuildError(f"tiles multiply no such loops: {condition}")


def _substituted(expression: Any, variable: Any, value: Any) -> Any:
    return mapped(expression, (tvm.ir.Var, lambda found: value if found.same_as(variable) else found))


def _product_of(kind: str, axes: Sequence[_Axis], ahead: int) -> TileProduct:
    """The product that the axes of a nest make."""
    rows = [axis for axis in axes if axis.sums and not axis.right]
    panels = [axis for axis in axes if axis.sums and axis.right]
    lanes = panels.pop() if panels else None
    summed = [axis for axis in axes if not axis.sums]
    group = summed.pop() if summed else None
    if (
        lanes is None
        or lanes != _Axis(_LANES, 0, GROUP_BYTES, _SUM_BYTES)
        or group is None
        or group.extent * group.left != GROUP_BYTES
        or group.left != group.right
        or any(axis.left for axis in panels)
        or len(panels) > 1
    ):
        raise BuildError(f"tiles multiply no such loops: {axes}")
    panel = panels[0] if panels else _Axis(1, 0, 0, 0)
    loops, groups = _merged_sum(summed)
    for merged in (True, False):
        places, steps = _row_places(rows, merged)
        product = TileProduct(
            kind,
            places,
            tuple((n * panel.right, n * panel.sums) for n in range(panel.extent)),
            steps,
            loops,
            groups,
            ahead,
        )
        if product.registers() is not None:
            return product
    raise BuildError(f"tiles have too few registers: {axes}")


def _merged_sum(summed: Sequence[_Axis]) -> tuple[tuple[Loop, ...], int]:
    """Loops around the groups that lie side by side in both operands, and the number of those."""
    groups = 1
    rest = list(summed)
    while rest and (rest[-1].left, rest[-1].right) == (groups * GROUP_BYTES, groups * ROW_BYTES):
        groups *= rest.pop().extent
    return tuple(Loop(axis.extent, axis.left, axis.right) for axis in rest), groups


def _distance(outer: _Axis, inner: _Axis) -> int:
    """Rows between iterations of an axis around rows, the same in operand and sums; 0 where they differ.

    There may be more than the iterations of the rows: the sums between are of no use.
    """
    if not inner.left or outer.left % inner.left:
        return 0
    across = outer.left // inner.left
    return across if across >= inner.extent and outer.sums == across * inner.sums else 0


def _row_places(
    rows: Sequence[_Axis], merged: bool
) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, int]]:
    """Place and rows of each register along one or two axes of rows, and the bytes between rows."""
    inner = rows[-1] if rows else _Axis(1, 0, 0, 0)
    outer = list(rows[:-1])
    while merged and outer and (across := _distance(outer[-1], inner)):
        inner = _Axis((outer.pop().extent - 1) * across + inner.extent, inner.left, 0, inner.sums)
    starts = [(0, 0)]
    for axis in outer:
        starts = [
            (left + n * axis.left, sums + n * axis.sums) for left, sums in starts for n in range(axis.extent)
        ]
    places = []
    for left, sums in starts:
        for first, height in split_rows(inner.extent):
            places.append((left + first * inner.left, sums + first * inner.sums, height))
    return tuple(places), (inner.left or ROW_BYTES, inner.sums or ROW_BYTES)
