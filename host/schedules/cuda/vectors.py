"""Loads and stores of neighbours, up to 16 bytes at once, around what a thread computes one by one.

Vectors are taken where the analyser proves that neighbours follow one another in memory and that the first
one is aligned: a GPU faults at a vector that is not. Elsewhere elements are loaded and stored one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.lowering.types import numeric_type
from host.schedules.cuda.epilogue import loads, replaced, same_load
from host.schedules.cuda.nest import buffer, sequence, unrolled
from host.schedules.cuda.sources import CHUNK_BYTES
from host.tensor_ir.structural import mapped

# Types whose vectors TVM writes as one access.
_IN_VECTORS = ("float32", "float16", "int32", "int8", "uint8")
_CONDITION = "prim.if_then_else"


class Lanes:
    """Neighbouring iterations of one thread.

    Attributes:
        width: how many.
        variable: the number of one of them, in expressions.
        buffers: registers that the statements use.

    Args:
        width: how many, a power of two.
        name: of the registers, different from those of other lanes of the program.
    """

    def __init__(self, width: int, name: str) -> None:
        self.width, self.variable = width, tirx.Var(f"{name}_lane", "int32")
        self.buffers: list[tirx.Buffer] = []
        self._name = name
        self._analyser = tvm.sym.Analyzer()
        self._analyser.bind(self.variable, tvm.ir.Range(0, width))

    def vector(self, memory: tirx.Buffer, indices: Sequence[Any]) -> int:
        """Elements that one access takes: 1 where neighbours lie apart or are not aligned.

        Args:
            memory: an argument of the function.
            indices: of a place in it, in terms of `variable`.
        """
        dtype = str(memory.dtype)
        if self.width == 1 or dtype not in _IN_VECTORS or memory.scope() != "global":
            return 1
        place = _offset(memory, indices)
        first = replaced(place, [self.variable], [0])
        if not self._analyser.can_prove_equal(place, first + self.variable):
            return 1
        size = math.gcd(self.width, CHUNK_BYTES // numeric_type(dtype).bytes)
        while size > 1 and not self._analyser.can_prove_equal(first % size, tirx.const(0, "int32")):
            size //= 2
        return size

    def loaded(self, expressions: Sequence[Any]) -> tuple[list[tirx.Stmt], list[Any]]:
        """Statements that load vectors, and the expressions with registers in their place.

        What a condition decides is not loaded ahead: it may lie outside of its tensor.
        """
        decided = [load for value in expressions for load in _decided(value)]
        known: list[tuple[Any, tirx.Buffer]] = []
        statements: list[tirx.Stmt] = []
        for load in (load for value in expressions for load in loads(value)):
            size = self.vector(load.source, load.indices)
            if size == 1 or _found(load, decided) or _found(load, [other for other, _ in known]):
                continue
            registers = self._registers(str(load.source.dtype))
            known.append((load, registers))
            statements += self._moved(size, (registers, 0), (load.source, load.indices), True)

        def register(load: Any) -> Any:
            for other, registers in known:
                if same_load(load, other):
                    return tirx.BufferLoad(registers, [self.variable])
            return load

        return statements, [mapped(value, (tvm.ir.TensorLoad, register)) for value in expressions]

    def moved(
        self, registers: tuple[tirx.Buffer, int], place: tuple[tirx.Buffer, Sequence[Any]]
    ) -> list[tirx.Stmt]:
        """Statements that load neighbours into registers, in vectors where memory allows.

        Args:
            registers: of the memory's type, and the first of them.
            place: the memory, and where a lane's element lies in it.
        """
        return self._moved(self.vector(*place), registers, place, True)

    def stored(self, memory: tirx.Buffer, indices: Sequence[Any], value: Any) -> list[tirx.Stmt]:
        """Statements that compute a value for each lane and store all, in vectors where memory allows.

        Args:
            memory: where they go.
            indices: in terms of `variable`.
            value: in terms of `variable`.
        """
        size = self.vector(memory, indices)
        if size == 1:
            return [self.each(tirx.BufferStore(memory, value, list(indices)))]
        registers = self._registers(str(memory.dtype))
        computed = self.each(tirx.BufferStore(registers, value, [self.variable]))
        return [computed, *self._moved(size, (registers, 0), (memory, indices), False)]

    def left(
        self, memory: tirx.Buffer, place: Callable[[Any], Any], value: Any, size: int
    ) -> list[tirx.Stmt]:
        """Statements that compute a value for each lane and leave all in shared memory.

        Args:
            memory: shared by a block.
            place: of a lane, from which on `size` of them lie side by side.
            value: in terms of `variable`.
            size: lanes that one access takes; booleans are left one by one, since TVM takes two bytes for
                each of a vector of them.
        """
        registers = self._registers(str(memory.dtype))
        size = 1 if str(memory.dtype) == "bool" else size

        def part(number: Any) -> tirx.Stmt:
            first, element = number * size, tirx.Var("element", "int32")
            if size == 1:
                return tirx.BufferStore(memory, tirx.BufferLoad(registers, [first]), [place(first)])
            load = tirx.BufferLoad(registers, [first + element])
            store = tirx.BufferStore(memory, load, [place(first) + element])
            return tirx.For(element, 0, size, tirx.ForKind.VECTORIZED, store)

        computed = self.each(tirx.BufferStore(registers, value, [self.variable]))
        return [computed, unrolled(self.width // size, part)]

    def each(self, statement: tirx.Stmt) -> tirx.Stmt:
        """A statement for each lane, written out."""
        if self.width == 1:
            return self._at(statement, tirx.const(0, "int32"))
        variable = tirx.Var("lane", "int32")
        return tirx.For(variable, 0, self.width, tirx.ForKind.UNROLLED, self._at(statement, variable))

    def _registers(self, dtype: str) -> tirx.Buffer:
        registers = buffer(f"{self._name}_registers{len(self.buffers)}", self.width, dtype)
        self.buffers.append(registers)
        return registers

    def _moved(
        self,
        size: int,
        registers: tuple[tirx.Buffer, int],
        place: tuple[tirx.Buffer, Sequence[Any]],
        load: bool,
    ) -> list[tirx.Stmt]:
        """Moves all lanes between registers and memory, `size` elements at once."""
        (local, first), (memory, indices) = registers, place

        def part(number: Any) -> tirx.Stmt:
            element = tirx.Var("element", "int32")
            lane = number * size + element
            there = [self._at(index, lane) for index in indices]
            move = (
                tirx.BufferStore(local, tirx.BufferLoad(memory, there), [first + lane])
                if load
                else tirx.BufferStore(memory, tirx.BufferLoad(local, [first + lane]), there)
            )
            return tirx.For(element, 0, size, tirx.ForKind.VECTORIZED, move)

        return [unrolled(self.width // size, part)]

    def _at(self, node: Any, lane: Any) -> Any:
        return replaced(node, [self.variable], [lane])


def turns(count: int, body: Any, most: int = 8) -> tirx.Stmt:
    """A loop over the turns of a thread: written out if there are few, so that loads are under way together.

    Args:
        count: of turns.
        body: a function of the turn.
        most: turns up to which it is written out.
    """
    if count <= most:
        return unrolled(count, body)
    variable = tirx.Var("turn", "int32")
    return tirx.For(variable, 0, count, tirx.ForKind.SERIAL, body(variable))


def under(statements: Iterable[tirx.Stmt], conditions: Iterable[Any]) -> tirx.Stmt:
    """Statements under all of some conditions."""
    statement = sequence(list(statements))
    for condition in conditions:
        statement = tirx.IfThenElse(condition, statement, None)
    return statement


def _offset(memory: tirx.Buffer, indices: Sequence[Any]) -> Any:
    """The number of an element of a compact buffer."""
    total: Any = tirx.const(0, "int32")
    for index, extent in zip(indices, memory.shape, strict=True):
        total = total * int(extent) + index
    return total


def _decided(value: Any) -> list[Any]:
    """The loads that conditions of an expression decide about."""
    calls: list[Any] = []
    tvm_ffi.structural_walk(value, (tvm.ir.Call, calls.append), order="post")
    choices = [call for call in calls if getattr(call.op, "name", "") == _CONDITION]
    return [load for call in choices for branch in call.args[1:] for load in loads(branch)]


def _found(load: Any, others: list[Any]) -> bool:
    return any(same_load(load, other) for other in others)
