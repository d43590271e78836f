"""Attention in tiles: scores of 16 rows of queries by keys, and sums of values by 16 rows of powers.

Operands are numbers of bfloat16, of which keys and values lie in pairs: those of two elements of a head, and
of two positions. Sums are in single precision. Registers are configured before.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from host.tensor_ir.tiles.lines import DEPTH, LANES, TILE_BYTES, Lines, defined

SCORES_PREFIX, SUMS_PREFIX = "edgetlm_score_tiles_", "edgetlm_sum_tiles_"
# Registers that hold queries, and those that hold sums of values.
_MOST_ROWS_HELD, _MOST_SUMS = 4, 4


@dataclass(frozen=True)
class ScoreTiles:
    """Scores of 16 rows, vector by vector of 16 positions.

    Attributes:
        size: elements of a head, a multiple of 32.
        positions: of a block, whose scores lie in a row.
    """

    size: int
    positions: int

    @property
    def name(self) -> str:
        """The function's name.

        It takes the addresses of queries (16, size) bfloat16, keys (vectors, size / 2, 16) pairs, and scores
        (16, positions) float32, and the number of vectors, one at least.
        """
        return SCORES_PREFIX + "_".join(map(str, astuple(self)))

    def text(self) -> str:
        """The function in LLVM's language."""
        lines, steps = Lines(), self.size // DEPTH
        # Queries of few elements stay in registers.
        held = steps <= _MOST_ROWS_HELD
        rows = [lines.place("%queries", str(step * DEPTH * 2)) for step in range(steps)]
        for step, address in enumerate(rows if held else []):
            lines.load(2 + step, address, self.size * 2)
        lines.add("%count = zext i32 %vectors to i64")
        with lines.loop("every", "%count") as vector:
            lines.zero(0)
            for step, address in enumerate(rows):
                at = lines.sum((vector, steps * TILE_BYTES), step * TILE_BYTES)
                lines.load(6 + step % 2, lines.place("%keys", at), LANES * 4)
                if not held:
                    lines.load(2, address, self.size * 2)
                lines.multiply(0, 2 + (step if held else 0), 6 + step % 2)
            lines.store(0, lines.place("%scores", lines.sum((vector, LANES * 4))), self.positions * 4)
        arguments = "ptr noalias %queries, ptr noalias %keys, ptr noalias %scores, i32 %vectors"
        return defined(self.name, arguments, lines)


@dataclass(frozen=True)
class SumTiles:
    """Adds values, weighed by powers, to the sums of 16 rows.

    Attributes:
        size: elements of a head, a multiple of 16.
        positions: of a block, whose powers lie in a row.
    """

    size: int
    positions: int

    @property
    def name(self) -> str:
        """The function's name.

        It takes the addresses of powers (16, positions) bfloat16, values (positions / 2, size) pairs, and
        sums (16, size) float32, and how often 32 positions are added, once at least.
        """
        return SUMS_PREFIX + "_".join(map(str, astuple(self)))

    def text(self) -> str:
        """The function in LLVM's language."""
        lines, every = Lines(), self.size // LANES
        lines.add("%count = zext i32 %steps to i64")
        for start in range(0, every, _MOST_SUMS):
            columns = range(start, min(every, start + _MOST_SUMS))
            places = [lines.place("%sums", str(column * LANES * 4)) for column in columns]
            for tile, address in enumerate(places):
                lines.load(tile, address, self.size * 4)
            with lines.loop(f"from{start}", "%count") as step:
                at = lines.sum((step, DEPTH * 2))
                lines.load(4, lines.place("%powers", at), self.positions * 2)
                for tile, column in enumerate(columns):
                    at = lines.sum((step, DEPTH // 2 * self.size * 4), column * LANES * 4)
                    lines.load(6 + tile % 2, lines.place("%values", at), self.size * 4)
                    lines.multiply(tile, 4, 6 + tile % 2)
            for tile, address in enumerate(places):
                lines.store(tile, address, self.size * 4)
        arguments = "ptr noalias %powers, ptr noalias %values, ptr noalias %sums, i32 %steps"
        return defined(self.name, arguments, lines)
