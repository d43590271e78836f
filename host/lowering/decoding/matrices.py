"""Lines of attention over a block of positions whose products are those of registers of matrices.

The functions that they call are of `host.tensor_ir.tiles.attention`.
"""

from __future__ import annotations

from host.lowering.decoding.lines import each, vectors
from host.lowering.decoding.shape import CacheShape
from host.tensor_ir.tiles.attention import ScoreTiles, SumTiles
from host.tensor_ir.tiles.lines import CONFIGURED, DEPTH
from host.tensor_ir.tiles.registers import RELEASED, ROWS

# Positions, or elements of a head, that a product adds up.
STEP = DEPTH
__all__ = (
    "ROWS",
    "STEP",
    "configure_lines",
    "release_lines",
    "score_lines",
    "value_lines",
    "zero_lines",
)


def configure_lines() -> list[str]:
    """Lines before the first product of a thread."""
    return [f'T.evaluate(T.call_extern("int32", "{CONFIGURED.name}"))']


def release_lines() -> list[str]:
    """Lines behind the last one."""
    return [f'T.evaluate(T.call_extern("int32", "{RELEASED.name}"))']


def zero_lines(size: int, left: str) -> list[str]:
    """Lines that fill the last step of a block's values, of which `left` positions are there.

    Powers are zero there, by which nothing that is no number may be multiplied.
    """
    return [
        f"for n in range(({left} + 1) // 2, ({left} + {STEP - 1}) // {STEP} * {STEP // 2}):",
        f"    for d in T.vectorized({size}):",
        "        values[n, d] = T.uint32(0)",
    ]


def score_lines(size: int, positions: int, left: str) -> list[str]:
    """Lines that compute the products of a tile's queries with the keys of `left` positions of a block."""
    name = ScoreTiles(size, positions).name
    return [
        f"if {left} > 0:",
        f'    T.evaluate(T.call_extern("int32", "{name}", T.address_of(queries[r * {ROWS}, 0]), '
        f"T.address_of(keys[0, 0, 0]), T.address_of(scores[0, 0, 0]), ({left} + 15) // 16))",
    ]


def value_lines(shape: CacheShape, positions: int, left: str) -> list[str]:
    """Lines that add the values of `left` positions of a block, weighed by powers, to a tile's sums."""
    name = SumTiles(shape.size, positions).name
    place = f"mixed[r * {ROWS} + i, d]"
    return [
        f"for b in range(({left} + 15) // 16, ({left} + {STEP - 1}) // {STEP} * {STEP // 16}):",
        *each(ROWS, "powers[i, b * 16 + l] = T.cast(T.float32(0), 'bfloat16')"),
        *vectors(ROWS, shape.vectors, f"{place} = {place} * grown[i]", 0),
        f"if {left} > 0:",
        f'    T.evaluate(T.call_extern("int32", "{name}", T.address_of(powers[0, 0]), '
        f"T.address_of(values[0, 0]), T.address_of(mixed[r * {ROWS}, 0]), "
        f"({left} + {STEP - 1}) // {STEP}))",
    ]
