"""Lines of attention over a block of positions whose products are those of registers of matrices.

The functions that they call are of `host.tensor_ir.tiles.attention`.
"""

from __future__ import annotations

from host.lowering.decoding.lines import LOWEST, each, halvings, indented, reached_lines, vectors
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
    "divided_lines",
    "highest_text",
    "release_lines",
    "tile_lines",
    "weight_scale",
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


def weight_scale(shape: CacheShape) -> float:
    """What scores are multiplied by where weights are made of them; 1 where they have been before.

    The exponential takes the scale for nothing, and the highest score is found without it.
    """
    return shape.scale if shape.scale > 0.0 and not shape.cap else 1.0


def tile_lines(shape: CacheShape, positions: int, block: str) -> list[str]:
    """A tile of rows over a block, from its first position to the last that its last row reads.

    Rows that read all positions of the block have no masks.

    Args:
        shape: extents of the function.
        positions: of a block.
        block: its number.
    """
    group, held, start = shape.group, positions, shape.start
    row = f"(r * {ROWS} + i)"
    end = f"({start} + {row} // {group} + 1)"
    last = f"({start} + (r * {ROWS} + {ROWS - 1}) // {group} + 1)"
    left = f"T.max(T.min({held}, {last} - {block} * {held}), 0)"
    place, before = f"{block} * {held} + b * 16 + l", f"highest[{row}]"
    inside, all_read = f"{place} < {end}", f"{start} + (r * {ROWS}) // {group} + 1 >= ({block} + 1) * {held}"
    if shape.window:
        inside += f" and {place} >= {end} - {shape.window}"
        all_read += f" and {block} * {held} >= {last} - {shape.window}"
    score = _score(shape)
    lines = [
        *each(ROWS, "largest[i, l] = " + LOWEST, 0),
        *_scores(shape.size, held, left),
        f"if {all_read}:",
        *indented(_highest(f"{held // 16}", score), 4),
        "else:",
        *indented(_highest(f"({left} + 15) // 16", f"T.Select({inside}, {score}, {LOWEST})"), 4),
        *reached_lines(ROWS, before, "weight"),
        *each(ROWS, f"sums[i, l] = totals[{row}, l] * grown[i]", 0),
        f"for b in range(({left} + 15) // 16):",
        *_weighed(before),
        *each(ROWS, f"totals[{row}, l] = sums[i, l]", 0),
        *_values(shape, held, left),
    ]
    # Behind the last position that a tile reads, it has nothing to do.
    return [f"if {left} > 0:", *indented(lines, 4)]


def divided_lines(whole: bool) -> tuple[list[str], str]:
    """Lines that add up a row's weights, and the text of element `d` of its result.

    Args:
        whole: whether the result is a mean of values; otherwise it is the sum that a part leaves.
    """
    lines = halvings("totals[r", "{0} + {1}", 4)
    if not whole:
        return lines, "mixed[r, d]"
    # One division of a row: the operands of the product behind it are rounded to far fewer bits.
    return [*lines, "    totals[r, 1] = T.float32(1) / totals[r, 0]"], "mixed[r, d] * totals[r, 1]"


def highest_text(shape: CacheShape) -> str:
    """Text of the highest score of row `r`, in which parts are compared."""
    scale = weight_scale(shape)
    return "highest[r]" if scale == 1.0 else f"T.max(highest[r] * T.float32({scale!r}), {LOWEST})"


def _score(shape: CacheShape) -> str:
    """Text of the score of a row at a position, of which weights are made."""
    if weight_scale(shape) != 1.0:
        return "scores[i, b, l]"
    scaled = f"scores[i, b, l] * T.float32({shape.scale!r})"
    return f"capped({scaled})" if shape.cap else scaled


def _highest(count: str, score: str) -> list[str]:
    """Lines that find the highest score of each row and lane among so many vectors of positions."""
    stored = [] if score == "scores[i, b, l]" else each(ROWS, f"scores[i, b, l] = {score}")
    found = each(ROWS, "largest[i, l] = T.max(largest[i, l], scores[i, b, l])")
    return [f"for b in range({count}):", *stored, *found]


def _weighed(before: str) -> list[str]:
    """Lines that make weights of the scores of a vector of positions, row by row, and add them up."""
    statements = (
        f"weights[i, l] = weight(scores[i, b, l], {before})",
        "sums[i, l] = sums[i, l] + weights[i, l]",
        "powers[i, b * 16 + l] = T.cast(weights[i, l], 'bfloat16')",
    )
    # Of a loop of vectors with several statements, TVM makes wrong ones where elements are not of one size.
    loops = [line for one in statements for line in ("for l in T.vectorized(16):", f"    {one}")]
    return [f"    for i in T.unroll({ROWS}):", *indented(loops, 8)]


def _scores(size: int, positions: int, left: str) -> list[str]:
    """Lines that compute the products of a tile's queries with the keys of `left` positions of a block."""
    name = ScoreTiles(size, positions).name
    return [
        f'T.evaluate(T.call_extern("int32", "{name}", T.address_of(queries[r * {ROWS}, 0]), '
        f"T.address_of(keys[0, 0, 0]), T.address_of(scores[0, 0, 0]), ({left} + 15) // 16))",
    ]


def _values(shape: CacheShape, positions: int, left: str) -> list[str]:
    """Lines that add the values of `left` positions of a block, weighed by powers, to a tile's sums."""
    name = SumTiles(shape.size, positions).name
    place = f"mixed[r * {ROWS} + i, d]"
    return [
        f"for b in range(({left} + 15) // 16, ({left} + {STEP - 1}) // {STEP} * {STEP // 16}):",
        *each(ROWS, "powers[i, b * 16 + l] = T.cast(T.float32(0), 'bfloat16')"),
        *vectors(ROWS, shape.vectors, f"{place} = {place} * grown[i]", 0),
        f'T.evaluate(T.call_extern("int32", "{name}", T.address_of(powers[0, 0]), '
        f"T.address_of(values[0, 0]), T.address_of(mixed[r * {ROWS}, 0]), "
        f"({left} + {STEP - 1}) // {STEP}))",
    ]
