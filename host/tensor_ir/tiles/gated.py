"""Products of gate and up with quantised weights, of which the activation makes one result.

A block is a panel of gate and the panel of up with the same outputs, whose sums of a turn are in registers of
matrices together. These go to a few kilobytes that the first cache level holds. While the next turn is
multiplied, vector units compute activation(gate) * up, and store that alone: half of what the product is.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from host.tensor_ir.tiles.lines import DEPTH, LANES, TILE_BYTES, Lines
from host.tensor_ir.tiles.quantised import QuantisedPanels
from host.tensor_ir.tiles.registers import ROWS as TILE_ROWS

GATED_PREFIX = "edgetlm_gated_tiles_"
# Activations by the number that a function's name has.
ACTIVATIONS = ("silu", "gelu_tanh")
# 2^x on |x| <= 1/2 with a relative error of 7.5e-8, from the constant on: a minimax fit of this project.
_POWER = (
    1.0000000716537922,
    0.6931469670372095,
    0.24022119726731123,
    0.05550713318496756,
    0.00967554121832334,
    0.0013276457445518452,
)
_LOG2_E = 1.4426950408889634
# Beyond, 1 + e^x is 1, or more than all floats.
_FARTHEST = 89.0
# tanh(x) of GELU's approximation, as of twice its argument: x (a + b x^2).
_GELU = (1.5957691216057308, 1.5957691216057308 * 0.044715)
_LINE_BYTES = 64


@dataclass(frozen=True)
class GatedPanels(QuantisedPanels):
    """The gated products of a few panels with all rows.

    `wide` are the panels of gate; those of up lie behind all of gate, as many as `columns` have.

    Attributes:
        activation: its place in `ACTIVATIONS`.
        in_tiles: 1 where the result is tiles of bfloat16 numbers, as of `TiledRows`; 0 where it is rows.
    """

    activation: int
    in_tiles: int

    @property
    def name(self) -> str:
        """The function's name; `result` has the `columns` of gate, which are those of up."""
        return GATED_PREFIX + "_".join(map(str, astuple(self)))

    @property
    def pair(self) -> int:
        """Panels that are multiplied together: one of gate and one of up."""
        return 2

    @property
    def blocks(self) -> int:
        """Blocks that follow one another."""
        return self.wide

    def panel(self, lines: Lines, block: str, across: str) -> str:
        """The number of the panel of gate (0) or of up (1)."""
        return lines.sum((block, 1), (across, self.columns // LANES))

    def prepare(self, lines: Lines) -> None:
        """Makes room for the sums of two turns: those that wait, and those that come next."""
        lines.add(f"%waiting = alloca [{2 * self._waiting_bytes} x i8], align 64")
        # Nothing waits in the first turn, which computes with zeros.
        lines.zero(0)
        for number in range(self.pair * self.tall):
            lines.store(0, lines.place("%waiting", str(number * TILE_BYTES)), LANES * 4)

    def made(self, lines: Lines, block: str, turn: str) -> None:
        """Puts the sums of a turn where they wait."""
        place = self._waiting(lines, self._number(lines, block, turn))
        for register in range(self.pair * self.tall):
            address = lines.place("%waiting", lines.sum((place, 1), register * TILE_BYTES))
            lines.store(register, address, LANES * 4)

    def beside(self, lines: Lines, block: str, turn: str, number: str) -> None:
        """Computes some rows of what waits; that of the first turn is overwritten by what belongs there."""
        rows, each = self.tall * TILE_ROWS, 1
        while each * self.steps < rows:
            each *= 2
        here = self._number(lines, block, turn)
        any_before = lines.value(f"call i64 @llvm.umin.i64(i64 {here}, i64 1)")
        before = lines.value(f"sub i64 {here}, {any_before}")
        first = lines.sum((number, each))
        with lines.when("gated", lines.value(f"icmp ult i64 {first}, {rows}")):
            for row in range(each):
                self._row(lines, before, lines.sum((first, 1), row))

    def finish(self, lines: Lines) -> None:
        """Computes what waits at last."""
        with lines.loop("gated_last", self.tall * TILE_ROWS) as row:
            self._row(lines, str(self.blocks * self.turns - 1), row)

    @property
    def _waiting_bytes(self) -> int:
        return self.pair * self.tall * TILE_BYTES

    def _number(self, lines: Lines, block: str, turn: str) -> str:
        """The number of a turn of a block, from the first of all."""
        return lines.sum((block, self.turns), (turn, 1))

    def _waiting(self, lines: Lines, number: str) -> str:
        """Where the sums of a turn wait."""
        return lines.sum((lines.value(f"and i64 {number}, 1"), self._waiting_bytes))

    def _row(self, lines: Lines, number: str, row: str) -> None:
        """Computes a row of a turn."""
        stride = self.columns * 4
        down = lines.value(f"udiv i64 {row}, {TILE_ROWS}")
        # A row of gate lies before a tile of which up has the same row.
        place = lines.sum((self._waiting(lines, number), 1), (row, _LINE_BYTES), (down, TILE_BYTES))
        gate, up = (
            lines.value(f"load <16 x float>, ptr {lines.place('%waiting', at)}, align 64")
            for at in (place, lines.sum((place, 1), TILE_BYTES))
        )
        block, turn = (lines.value(f"{name} i64 {number}, {self.turns}") for name in ("udiv", "urem"))
        product = lines.value(f"fmul <16 x float> {_activated(lines, gate, self.activation)}, {up}")
        if not self.in_tiles:
            to = lines.sum((turn, TILE_ROWS * self.tall * stride), (row, stride), (block, LANES * 4))
            lines.add(f"store <16 x float> {product}, ptr {lines.place('%result', to)}, align 4")
            return
        # Two blocks make a tile, each its half of every row.
        tile, half = (lines.value(f"{name} i64 {block}, 2") for name in ("udiv", "urem"))
        within = lines.value(f"urem i64 {row}, {TILE_ROWS}")
        of_rows = self.columns // DEPTH * TILE_BYTES
        to = lines.sum((turn, self.tall * of_rows), (down, of_rows), (tile, TILE_BYTES))
        to = lines.sum((to, 1), (within, _LINE_BYTES), (half, LANES * 2))
        narrow = lines.value(f"fptrunc <16 x float> {product} to <16 x bfloat>")
        lines.add(f"store <16 x bfloat> {narrow}, ptr {lines.place('%result', to)}, align 4")


def _activated(lines: Lines, x: str, activation: int) -> str:
    """The quotient x / (1 + e^-y): y is x of SiLU, and of GELU twice what its hyperbolic tangent is of."""
    y = x
    if ACTIVATIONS[activation] == "gelu_tanh":
        square = lines.value(f"fmul <16 x float> {x}, {x}")
        y = lines.value(f"fmul <16 x float> {_sum_of_product(lines, square, _GELU[1], _GELU[0])}, {x}")
    # A comparison with NaN does not hold, so that it stays.
    for kind, limit in (("olt", -_FARTHEST), ("ogt", _FARTHEST)):
        beyond = lines.value(f"fcmp {kind} <16 x float> {y}, {_all_of(limit)}")
        y = lines.value(f"select <16 x i1> {beyond}, <16 x float> {_all_of(limit)}, <16 x float> {y}")
    power = lines.value(f"fmul <16 x float> {y}, {_all_of(-_LOG2_E)}")
    whole = lines.value(f"call <16 x float> @llvm.roundeven.v16f32(<16 x float> {power})")
    negated = lines.value(f"fneg <16 x float> {whole}")
    rest = _fused(lines, y, _all_of(-_LOG2_E), negated)
    polynomial = _all_of(_POWER[-1])
    for coefficient in reversed(_POWER[:-1]):
        polynomial = _fused(lines, polynomial, rest, _all_of(coefficient))
    scaled = lines.value(
        "call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512("
        f"<16 x float> {polynomial}, <16 x float> {whole}, <16 x float> zeroinitializer, i16 -1, i32 4)"
    )
    below = lines.value(f"fadd <16 x float> {scaled}, {_all_of(1.0)}")
    return lines.value(f"fdiv <16 x float> {x}, {below}")


def _sum_of_product(lines: Lines, x: str, factor: float, added: float) -> str:
    return _fused(lines, x, _all_of(factor), _all_of(added))


def _fused(lines: Lines, x: str, factor: str, added: str) -> str:
    """A product and a sum, rounded once."""
    return lines.value(
        f"call <16 x float> @llvm.fma.v16f32(<16 x float> {x}, <16 x float> {factor}, <16 x float> {added})"
    )


def _all_of(number: float) -> str:
    """A vector of one number, in single precision, by its bits as LLVM's language has them."""
    (single,) = struct.unpack("<f", struct.pack("<f", number))
    (bits,) = struct.unpack("<Q", struct.pack("<d", single))
    return "<" + ", ".join([f"float 0x{bits:016X}"] * LANES) + ">"
