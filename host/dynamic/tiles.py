"""A program in whole tiles of a length, as one for any length: the last tile overlaps the one before.

A register tile that is only partly full costs conditions in the innermost loop. Instead, the tile that
would run over the end starts earlier, so that it ends where the data ends, and computes some elements twice.
That is right where the elements of tiles do not depend on one another: sums are kept in a buffer of the tile,
and outside of it each element is written, never added to. `clamped` refuses everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from host.dynamic.fetches import apart, joined
from host.dynamic.formula import Formula
from host.dynamic.parallel import dependent_buffer, uses
from host.dynamic.template import Share, unify
from host.errors import ScheduleError
from host.tensor_ir.structural import mapped

# What TVM's own lowering does first. After it there are loops and buffers only, each of the size it needs.
_TO_LOOPS = tvm.transform.Sequential(
    [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
)


def to_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function as plain loops over buffers of the size they need."""
    module = _TO_LOOPS(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    lowered: tirx.PrimFunc = module["main"]
    return lowered


@dataclass(frozen=True, eq=False)
class Clamped:
    """A program over a length.

    Attributes:
        function: over the length.
        shortest_length: that it takes: the largest tile along the length.
    """

    function: tirx.PrimFunc
    shortest_length: int


def clamped(programs: Mapping[int, tirx.PrimFunc], period: int, length: tirx.Var, what: str) -> Clamped:
    """The program for any length out of those for some multiples of the tile.

    Args:
        programs: plain loops (`to_loops`) by number of multiples.
        period: the length of one multiple; every tile along the length divides it.
        length: the variable, int32.
        what: name, for messages.

    Raises:
        LoweringError: the programs differ in more than numbers.
        ScheduleError: a tile could not overlap another.
    """
    template = unify(programs, what)
    count = tirx.Var("multiples", "int32")
    slots = {}
    for place, slot in template.slots.items():
        slots[place] = _Scaled(slot, period, length)
    function = template.with_slots(slots).over(count)  # type: ignore[arg-type]
    writer = _Clamping(count, period, length, what)
    body, own = apart(function.body)
    body = joined(writer.statement(body), own)
    if uses(body, count) or any(uses(p.ty, count) for p in function.params):
        raise ScheduleError(f"{what}: a size depends on the number of tiles")
    over_length = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    return Clamped(over_length, writer.shortest_length)


@dataclass(frozen=True)
class _Scaled:
    """A number that depends on the multiples, written in the length where that is exact.

    Attributes:
        number: in the number of multiples.
        period: length of one multiple.
        length: the variable.
    """

    number: Formula | Share
    period: int
    length: tirx.Var

    def expression(self, count: Any) -> Any:
        """In the length if it divides, else in the number of multiples."""
        formula, period = self.number, self.period
        if isinstance(formula, Share):
            return formula.of_parts(period).expression(tirx.Cast(str(count.ty.dtype), self.length))
        if formula.units or formula.unit_rows or formula.unit_squares:
            return formula.expression(count)
        linear, rest = divmod(formula.linear, period)
        square, left = divmod(formula.square, period * period)
        if rest or left:
            return formula.expression(count)
        scaled = Formula(linear=linear, constant=formula.constant, square=square)
        return scaled.expression(self.length)


@dataclass
class _Clamping:
    """Rewrites the loops over tiles so that the last tile ends with the length."""

    count: tirx.Var
    period: int
    length: tirx.Var
    what: str
    shortest_length: int = 1

    def statement(self, statement: Any) -> Any:
        """The statement with its loops over tiles rewritten."""
        return mapped(statement, (tirx.For, self._loop))

    def _loop(self, loop: tirx.For) -> Any:
        if not uses(loop.extent, self.count):
            return loop
        tiles = self._tiles_in_multiple(loop.extent)
        if tiles is None or self.period % tiles or int(loop.min) != 0:
            raise ScheduleError(f"{self.what}: loop {loop.loop_var.name} is no loop over tiles")
        step = self.period // tiles
        shared = dependent_buffer(loop)
        if shared is not None:
            raise ScheduleError(f"{self.what}: tiles of {shared} depend on one another")
        inner = _partner(loop, step)
        return self._blocked(loop, step, *inner) if inner is not None else self._single(loop, step)

    def _tiles_in_multiple(self, extent: Any) -> int | None:
        """The factor k where the extent is k * count; None for any other extent."""
        if extent.same_as(self.count):
            return 1
        if isinstance(extent, tirx.Mul) and extent.a.same_as(self.count):
            return int(extent.b) if isinstance(extent.b, tirx.IntImm) else None
        return None

    def _single(self, loop: tirx.For, step: int) -> tirx.For:
        """One loop: tile i starts at min(i * step, length - step)."""
        self.shortest_length = max(self.shortest_length, step)
        start = tirx.Var(f"{loop.loop_var.name}_start", "int32")
        body = _moved(loop.body, loop.loop_var, step, start, self.what)
        place = tirx.min(loop.loop_var * step, self.length - step)
        bound = tirx.SeqStmt([tirx.Bind(start, place), body])
        # How many tiles there are is open now, so an unrolled loop no longer can be.
        kind = tirx.ForKind.SERIAL if loop.kind == tirx.ForKind.UNROLLED else loop.kind
        return _with(loop, (self.length + (step - 1)) // step, bound, kind)

    def _blocked(self, loop: tirx.For, step: int, inner: tirx.For) -> tirx.For:
        """Two loops, blocks of tiles: as few blocks as before, all of about the same number of tiles."""
        block = int(inner.extent)
        tile = step // block
        self.shortest_length = max(self.shortest_length, tile)
        tiles = (self.length + (tile - 1)) // tile
        blocks = (tiles + (block - 1)) // block
        number = tirx.Var(f"{loop.loop_var.name}_tiles", "int32")
        start = tirx.Var(f"{inner.loop_var.name}_start", "int32")

        def within(found: tirx.For) -> Any:
            if not found.loop_var.same_as(inner.loop_var):
                return found
            body = _moved(found.body, found.loop_var, tile, start, self.what)
            body = _dropped(body, loop.loop_var)
            place = tirx.min((loop.loop_var * number + found.loop_var) * tile, self.length - tile)
            extent = tirx.min(number, tiles - loop.loop_var * number)
            inside = tirx.SeqStmt([tirx.Bind(start, place), body])
            # How many tiles there are in the block is open now, so an unrolled loop no longer can be.
            return _with(found, extent, inside, tirx.ForKind.SERIAL)

        body = mapped(loop.body, (tirx.For, within))
        each = (tiles + (blocks - 1)) // blocks
        return _with(loop, blocks, tirx.SeqStmt([tirx.Bind(number, each), body]))


def _with(loop: tirx.For, extent: Any, body: Any, kind: Any = None) -> tirx.For:
    kind = loop.kind if kind is None else kind
    return tirx.For(loop.loop_var, loop.min, extent, kind, body, loop.thread_binding, loop.annotations)


def _products(node: Any, variable: tirx.Var) -> tuple[list[int], int]:
    """The factors that a variable is multiplied with, and how often it appears at all."""
    factors: list[int] = []
    uses = 0

    def product(found: tirx.Mul) -> None:
        if found.a.same_as(variable) and isinstance(found.b, tirx.IntImm):
            factors.append(int(found.b))

    def use(found: tirx.Var) -> None:
        nonlocal uses
        uses += found.same_as(variable)

    tvm_ffi.structural_walk(node, ((tirx.Mul, product), (tirx.Var, use)))
    return factors, uses


def _partner(loop: tirx.For, step: int) -> tuple[tirx.For] | None:
    """The loop over the tiles of one block, where the outer one goes over blocks of tiles."""
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(loop.body, (tirx.For, found.append), order="pre")
    for inner in found:
        kinds = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)
        plain = inner.kind in kinds and isinstance(inner.extent, tirx.IntImm)
        if not plain or int(inner.extent) < 2 or step % int(inner.extent):
            continue
        if _in_step(loop, inner):
            return (inner,)
    return None


def _in_step(loop: tirx.For, inner: tirx.For) -> bool:
    """Whether the two variables appear only together, as outer * (block * k) + inner * k."""
    block = int(inner.extent)
    outer_all = _products(loop.body, loop.loop_var)
    if outer_all != _products(inner.body, loop.loop_var):
        return False
    indices: list[Any] = []
    tvm_ffi.structural_walk(
        inner.body,
        (
            (tirx.BufferStore, lambda node: indices.extend(node.indices)),
            (tvm.ir.TensorLoad, lambda node: indices.extend(node.indices)),
        ),
    )
    total = 0
    for index in indices:
        outer, uses = _products(index, loop.loop_var)
        inner_factors, inner_uses = _products(index, inner.loop_var)
        if uses + inner_uses == 0:
            continue
        if uses != 1 or inner_uses != 1:
            return False
        given = inner_factors or [1]
        if len(outer) != 1 or outer[0] != given[0] * block:
            return False
        total += 1
    return total > 0


def _moved(body: Any, variable: tirx.Var, step: int, start: tirx.Var, what: str) -> Any:
    """The body with `variable * step` replaced by `start`."""

    def product(found: tirx.Mul) -> Any:
        if not (found.a.same_as(variable) and isinstance(found.b, tirx.IntImm)):
            return found
        factor, rest = divmod(int(found.b), step)
        if rest:
            raise ScheduleError(f"{what}: {variable.name} moves by {int(found.b)}, a tile has {step}")
        return start * factor if factor != 1 else start

    moved = mapped(body, (tirx.Mul, product))
    if step == 1:
        return mapped(moved, (tirx.Var, lambda v: start if v.same_as(variable) else v))
    if uses(moved, variable):
        raise ScheduleError(f"{what}: {variable.name} is used other than as the start of a tile")
    return moved


def _dropped(body: Any, variable: tirx.Var) -> Any:
    """The body without the products of a variable."""
    zero = tirx.IntImm("int32", 0)

    def sum_of(found: tirx.Add) -> Any:
        return found.b if isinstance(found.a, tirx.Mul) and found.a.a.same_as(variable) else found

    body = mapped(body, (tirx.Add, sum_of))
    return mapped(body, (tirx.Var, lambda v: zero if v.same_as(variable) else v))
