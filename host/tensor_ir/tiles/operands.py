"""Tiles of rows and of weights in registers of matrices: which they are, and when registers get them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from host.tensor_ir.tiles.lines import DEPTH, LANES, TILE_BYTES, Lines

if TYPE_CHECKING:
    from host.tensor_ir.tiles.quantised import QuantisedPanels

# The first registers of rows and of weights; those before have the sums.
_ROWS_FROM, _WEIGHTS_FROM = 4, 6
# Halves of operands that are multiplied where both keep 16 bits; the product of both low halves is below
# the last bit that counts. Each pair has one half of the pair before it.
_HIGH, _LOW = 0, 1
_EXACT = ((_LOW, _HIGH), (_HIGH, _HIGH), (_HIGH, _LOW))


def places(one: QuantisedPanels) -> list[tuple[int, int]]:
    """Tile of rows and panel of each register of sums."""
    return [(down, across) for down in range(one.tall) for across in range(one.pair)]


def begin(lines: Lines, one: QuantisedPanels, part: int, turn: str, step: str, here: str) -> None:
    """Fills registers with the first operands of a turn, see `products`."""
    for operand in _operands(one)[0]:
        operand.load(lines, one, part, turn, step, here)


class _Operand(NamedTuple):
    """A tile that a register gets: its rows or weights, counted from the first, and which half of them."""

    register: int
    of_rows: bool
    number: int
    half: int

    def load(self, lines: Lines, one: QuantisedPanels, part: int, turn: str, step: str, here: str) -> None:
        """Fills the register with the tile of a step, of a block whose weights lie `here`."""
        if self.of_rows:
            row_bytes = one.parts * one.steps * one.halves * TILE_BYTES
            first = part * one.steps * one.halves + self.half
            place = lines.sum((turn, one.tall * row_bytes), (step, one.halves * TILE_BYTES))
            place = lines.sum((place, 1), self.number * row_bytes + first * TILE_BYTES)
            lines.load(self.register, lines.place("%tiles", place), DEPTH * 2)
            return
        place = lines.sum((step, one.pair * one.halves * TILE_BYTES), (here, 1))
        place = lines.sum((place, 1), (self.number * one.halves + self.half) * TILE_BYTES)
        lines.load(self.register, lines.place("%apart", place), LANES * 4)


def _operands(one: QuantisedPanels) -> list[list[_Operand]]:
    """What registers get before the products of each pair of halves; each has a half of the one before."""
    found: list[list[_Operand]] = []
    held: tuple[int, int] | None = None
    for of_rows, of_weights in _EXACT if one.halves == 2 else ((_HIGH, _HIGH),):
        rows = [_Operand(_ROWS_FROM + down, True, down, of_rows) for down in range(one.tall)]
        weights = [_Operand(_WEIGHTS_FROM + across, False, across, of_weights) for across in range(one.pair)]
        found.append(
            [
                *(rows if held is None or held[0] != of_rows else []),
                *(weights if held is None or held[1] != of_weights else []),
            ]
        )
        held = (of_rows, of_weights)
    return found


def products(
    lines: Lines, one: QuantisedPanels, part: int, turn: str, steps: tuple[str, str], here: str
) -> None:
    """The products of one tile of the depth, whose first operands registers have; they get those of the next.

    Loads take as long as products: behind what vector units do in a step, they would wait for that.

    Args:
        lines: of the function.
        one: the function.
        part: of the depth.
        turn: which rows are multiplied.
        steps: the tile of the depth, and the one behind it.
        here: where the block's weights lie.
    """
    every = _operands(one)
    for number, operands in enumerate(every):
        for operand in operands if number else []:
            operand.load(lines, one, part, turn, steps[0], here)
        free = every[0] if number + 1 == len(every) else []
        for register, (down, across) in enumerate(places(one)):
            used = (_ROWS_FROM + down, _WEIGHTS_FROM + across)
            lines.multiply(register, *used)
            last = {_ROWS_FROM + down: across + 1 == one.pair, _WEIGHTS_FROM + across: down + 1 == one.tall}
            for operand in free:
                if last.get(operand.register):
                    operand.load(lines, one, part, turn, steps[1], here)
