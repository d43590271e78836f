"""The products of a warp's tile: one instruction for each 16 rows and 8 columns of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from host.schedules.cuda.mma import instructions as ptx
from host.schedules.cuda.mma.product import Product
from host.schedules.cuda.mma.tiles import MMA_COLUMNS, MMA_ROWS, Tiling
from host.schedules.cuda.nest import buffer, sequence, unrolled


@dataclass(frozen=True)
class Registers:
    """What a thread has of a warp's tile in registers.

    Attributes:
        sums: in single precision or in 32 bits.
        halves: pairs of sums in halves; used where a program has such.
        left: words of the left operand: those that are multiplied, and those that are loaded meanwhile.
        right: the same of the right one.
    """

    sums: tirx.Buffer
    halves: tirx.Buffer
    left: tirx.Buffer
    right: tirx.Buffer


def registers_of(product: Product, tiling: Tiling) -> Registers:
    """New registers for a program."""
    return Registers(
        buffer("sums", tiling.sums, product.sums),
        buffer("halves", max(1, tiling.half_words), "uint32"),
        buffer("left", tiling.sets * tiling.left_words, "uint32"),
        buffer("right", tiling.sets * tiling.right_words, "uint32"),
    )


def cleared(product: Product, tiling: Tiling, registers: Registers) -> tirx.Stmt:
    """Makes all sums zero."""
    zero = tirx.const(0, product.sums)
    clear = unrolled(tiling.sums, lambda n: tirx.BufferStore(registers.sums, zero, [n]))
    if not tiling.half_sums:
        return clear
    nothing = tirx.const(0, "uint32")
    halves = unrolled(tiling.half_words, lambda n: tirx.BufferStore(registers.halves, nothing, [n]))
    return sequence([clear, halves])


def multiplied(product: Product, tiling: Tiling, registers: Registers, turn: int) -> tirx.Stmt:
    """Multiplies what was loaded for a turn; sums in halves end with the last one."""
    sides = (product.left.access.type.name, product.right.access.type.name)
    types = sides if product.bytes else ("float16", "float16")
    words = (registers.left.data, registers.right.data)
    left, right = turn % 2 * tiling.left_words, turn % 2 * tiling.right_words

    def one(row: Any, column: Any, number: Any) -> tirx.Stmt:
        operands = (words[0], left + row * 4, words[1], right + column * 2)
        if tiling.half_sums:
            return ptx.multiply_add_halves(registers.halves.data, number * 2, *operands)
        return ptx.multiply_add(registers.sums.data, number * 4, *operands, types=types)

    def promoted(row: Any, column: Any, number: Any) -> tirx.Stmt:
        return ptx.promote(registers.sums.data, number * 4, registers.halves.data, number * 2)

    ended = tiling.half_sums and turn == tiling.turns - 1
    return sequence([_of_each(tiling, one), *([_of_each(tiling, promoted)] if ended else [])])


def _of_each(tiling: Tiling, body: Callable[[Any, Any, Any], tirx.Stmt]) -> tirx.Stmt:
    """A statement for each product of a warp's tile: its row, its column and its number."""
    tall, wide = tiling.rows // MMA_ROWS, tiling.columns // MMA_COLUMNS
    return unrolled(tall, lambda row: unrolled(wide, lambda column: body(row, column, row * wide + column)))
