"""Attention of many rows over a cache, block by block of its positions.

The keys and values of a block are read, and made single precision, once for all rows that share them.
Then every tile of rows computes its scores of the block and adds to its sums of values. The highest score of
a row so far, and the sum of the powers below it, go from block to block; where a block has a higher one, what
was summed up before is multiplied by the power of the difference ("online softmax", Milakov and Gimelshein
2018, as in FlashAttention, Dao et al. 2022).

With `CacheShape.rounded`, queries, keys, powers and values are rounded to bfloat16, and two products go to a
lane at once: those of two elements of a head, and those of two positions. Sums are in single precision. With
`CacheShape.in_tiles`, registers of matrices multiply 16 rows of them (`matrices`).
"""

from __future__ import annotations

from dataclasses import dataclass

from host.lowering.decoding.lines import (
    LOWEST,
    POSITIONS,
    Body,
    Split,
    each,
    indented,
    reached_lines,
    row_place,
    vectors,
)
from host.lowering.decoding.matrices import (
    ROWS,
    STEP,
    configure_lines,
    divided_lines,
    highest_text,
    release_lines,
    tile_lines,
    zero_lines,
)
from host.lowering.decoding.pairs import LANES, pair_products
from host.lowering.decoding.shape import CacheShape
from targets import HardwareModel

# Rows from which on reading a block once is worth its copy. Calls of few tokens have no blocks, so that a
# call that verifies drafted tokens gives the rows of steps bit for bit. Behind 1,984 positions, that takes
# 0.91 of the time of blocks where 8 heads of 64 elements share one of keys, and 1.09 where 16 of 128 do.
_FEWEST_ROWS, _FEW_TOKENS = 32, 8
# Elements of a block of keys, or of values: 32 KiB, and positions of it at most. Parts have whole blocks, and
# smaller ones divide a short text more evenly.
_BLOCK_ELEMENTS, _MOST_POSITIONS, _MOST_SPLIT_POSITIONS = 8192, 128, 64
# Vectors of sums that a tile keeps in registers. AVX2, of 8 lanes, has 16 registers, others 32.
_SUMS, _SUMS_OF_8_LANES = 16, 8
_MOST_ROWS, _VECTORS = 8, 4


@dataclass(frozen=True)
class _Tiles:
    """How rows and positions are divided.

    Attributes:
        rows: of one head of keys, all heads of queries of it.
        scored: rows whose scores are computed together.
        mixed: rows whose values are summed together, a divisor of `scored`.
        positions: of a block.
    """

    rows: int
    scored: int
    mixed: int
    positions: int


def blocked(shape: CacheShape, split: Split | None = None) -> Body | None:
    """The text of a head of keys, whose number is `vh`; None where there are few rows.

    Args:
        shape: extents of the function.
        split: the part of the positions that is computed, of which sums are left; None for the result.
    """
    tiles = _tiles(shape, _MOST_POSITIONS if split is None else _MOST_SPLIT_POSITIONS)
    if tiles is None:
        return None
    # One more than the last position that the last row reads, and the first block that the first row does.
    held, last = tiles.positions, f"({shape.start} + {shape.rows})"
    first = f"(T.max({shape.start} + 1 - {shape.window}, 0) // {held})" if shape.window else "0"
    behind, count = f"({last} + {held - 1}) // {held}", f"({last} + {held - 1}) // {held} - {first}"
    owned = ""
    if split is not None:
        begin, end = split.bounds(first, f"({behind})")
        owned = f"place >= {begin} * {held} and place < {end} * {held}"
        first, count = begin, f"T.max(T.min({behind}, {end}) - {begin}, 0)"
    return Body(_buffers(shape, tiles), _lines(shape, tiles, split, first, count), owned)


def has_blocks(shape: CacheShape) -> bool:
    """Whether there are so many rows that the cache is read in blocks."""
    return shape.rows > _FEW_TOKENS and shape.rows * shape.group >= _FEWEST_ROWS


def can_round(shape: CacheShape, hardware: HardwareModel) -> bool:
    """Whether products of bfloat16 numbers are faster, and there are so many rows that they are used."""
    even = shape.size % 2 == 0 and all(lanes in LANES for _, lanes in shape.vectors)
    fast = hardware.has_fast_bfloat16 or can_use_tiles(shape, hardware)
    return hardware.gpu is None and shape.lanes == POSITIONS and fast and even and has_blocks(shape)


def can_use_tiles(shape: CacheShape, hardware: HardwareModel) -> bool:
    """Whether registers of matrices multiply bfloat16 numbers, and rows and elements fill them."""
    if not hardware.has_bfloat16_tiles or shape.lanes != POSITIONS or not has_blocks(shape):
        return False
    return shape.rows * shape.group % ROWS == 0 and shape.size % STEP == 0


def block_positions(shape: CacheShape) -> int:
    """Positions of a block of a program with several parts, each of which has whole blocks."""
    tiles = _tiles(shape, _MOST_SPLIT_POSITIONS)
    return POSITIONS if tiles is None else tiles.positions


def _tiles(shape: CacheShape, most: int) -> _Tiles | None:
    rows = shape.rows * shape.group
    if not has_blocks(shape):
        return None
    sums = _SUMS_OF_8_LANES if shape.lanes == 8 else _SUMS
    scored = _divisor(rows, min(_MOST_ROWS, max(1, sums * min(shape.lanes, POSITIONS) // POSITIONS)))
    mixed = _divisor(scored, max(1, sums // _VECTORS))
    # Numbers of bfloat16 are half as large.
    elements = _BLOCK_ELEMENTS * (2 if shape.rounded else 1)
    fitting = elements // shape.size // POSITIONS * POSITIONS
    positions = max(POSITIONS, min(most, fitting, shape.capacity))
    if shape.in_tiles:
        # Rows of a register of powers have whole steps; a block may be larger than the cache.
        return _Tiles(rows, ROWS, ROWS, -(-positions // STEP) * STEP)
    return _Tiles(rows, scored, mixed, positions)


def _divisor(whole: int, most: int) -> int:
    return max(n for n in range(1, most + 1) if whole % n == 0)


def _buffers(shape: CacheShape, tiles: _Tiles) -> list[str]:
    rows, scored, size, blocks = tiles.rows, tiles.scored, shape.size, tiles.positions // POSITIONS
    extents: dict[str, tuple[int, ...]] = {
        "queries": (rows, size),
        "keys": (blocks, size, POSITIONS),
        "values": (tiles.positions, size),
        "scores": (scored, blocks, POSITIONS),
        "highest": (rows,),
        "totals": (rows, POSITIONS),
        "mixed": (rows, size),
    }
    kinds: dict[str, str] = {}
    if shape.rounded:
        extents |= {"keys": (blocks, size // 2, POSITIONS), "values": (tiles.positions // 2, size)}
        extents["powers"] = (scored, tiles.positions)
        kinds = dict.fromkeys(("keys", "values"), "uint32")
        kinds |= dict.fromkeys(("queries", "powers"), "bfloat16")
    local = {
        **({"weights": (scored, POSITIONS)} if shape.in_tiles else {}),
        "sums": (scored, POSITIONS),
        "largest": (scored, POSITIONS),
        "reached": (scored,),
        "grown": (scored,),
        "part": (tiles.mixed, size),
    }
    return [
        *(
            f'{name} = T.sblock_alloc_buffer({extent}, "{kinds.get(name, "float32")}")'
            for name, extent in extents.items()
        ),
        *(
            f'{name} = T.sblock_alloc_buffer({extent}, "float32", scope="local")'
            for name, extent in local.items()
        ),
    ]


def _lines(shape: CacheShape, tiles: _Tiles, split: Split | None, first: str, count: str) -> list[str]:
    """All rows over `count` blocks of positions, of which `first` is the first."""
    group, size = shape.group, shape.size
    last = f"({shape.start} + {shape.rows})"
    place = row_place(f"r // {group}", f"vh * {group} + r % {group}", split)
    query = f"query[r // {group}, vh * {group} + r % {group}, d]"
    query = f'T.cast({query}, "bfloat16")' if shape.rounded else query
    highest = highest_text(shape) if shape.in_tiles else "highest[r]"
    extremes = [f"    {place.maximum} = {highest}", f"    {place.total} = totals[r, 0]"]
    summed = [
        f"    for l in T.unroll({POSITIONS - 1}):",
        "        totals[r, 0] = totals[r, 0] + totals[r, l + 1]",
    ]
    result = f"mixed[r, d]{' / totals[r, 0]' if split is None else ''}"
    if shape.in_tiles:
        summed, result = divided_lines(split is None)
    return [
        *(configure_lines() if shape.in_tiles else []),
        f"for r in range({tiles.rows}):",
        f"    for d in T.vectorized({size}):",
        f"        queries[r, d] = {query}",
        "        mixed[r, d] = T.float32(0)",
        f"    for l in T.vectorized({POSITIONS}):",
        "        totals[r, l] = T.float32(0)",
        f"    highest[r] = {LOWEST}",
        f"for p in range({count}):",
        *indented(_copied(shape, tiles, f"({first} + p)", last), 4),
        f"    for r in range({tiles.rows // tiles.scored}):",
        *indented(_tile(shape, tiles, f"({first} + p)", shape.start), 8),
        f"for r in range({tiles.rows}):",
        *summed,
        *([] if split is None else extremes),
        f"    for d in T.vectorized({size}):",
        f"        {place.values} = {result}",
        *(release_lines() if shape.in_tiles else []),
    ]


def _copied(shape: CacheShape, tiles: _Tiles, block: str, last: str) -> list[str]:
    """The keys and values of a block as far as any row reads them."""
    held = tiles.positions
    left = f"T.min({held}, {last} - {block} * {held})"

    def key(element: str) -> str:
        read = f"T.cast(key_cache[vh, {block} * {held // 16} + b, {element}, l], 'float32')"
        scale = f"key_scales[vh, {block} * {held // 16} + b, l]"
        return f"{read} * T.cast({scale}, 'float32')" if shape.scaled else read

    def value(position: str) -> str:
        read = f"T.cast(value_cache[vh, {block} * {held} + {position}, d], 'float32')"
        scale = f"value_scales[vh, {block} * {held // 16} + {position} // 16, {position} % 16]"
        return f"{read} * T.cast({scale}, 'float32')" if shape.scaled else read

    if shape.rounded:
        steps, count = shape.size // 2, f"({left} + 1) // 2"
        of_keys = f"paired({key('d * 2')}, {key('d * 2 + 1')})"
        # Behind the last position, a pair has zero.
        second = f"T.Select(n * 2 + 1 < {left}, {value('(n * 2 + 1)')}, T.float32(0))"
        of_values = f"paired({value('n * 2')}, {second})"
    else:
        steps, count, of_keys, of_values = shape.size, left, key("d"), value("n")
    return [
        f"for b in range(({left} + 15) // 16):",
        f"    for d in range({steps}):",
        "        for l in T.vectorized(16):",
        f"            keys[b, d, l] = {of_keys}",
        f"for n in range({count}):",
        f"    for d in T.vectorized({shape.size}):",
        f"        values[n, d] = {of_values}",
        *(zero_lines(shape.size, left) if shape.in_tiles else []),
    ]


def _tile(shape: CacheShape, tiles: _Tiles, block: str, start: str) -> list[str]:
    """A tile of rows over a block, from its first position to the last that its last row reads."""
    if shape.in_tiles:
        return tile_lines(shape, tiles.positions, block)
    scored, held, group = tiles.scored, tiles.positions, shape.group
    row = f"(r * {scored} + i)"
    end = f"({start} + {row} // {group} + 1)"
    last = f"({start} + (r * {scored} + {scored - 1}) // {group} + 1)"
    left = f"T.max(T.min({held}, {last} - {block} * {held}), 0)"
    place = f"{block} * {held} + b * 16 + l"
    inside = f"{place} < {end}"
    if shape.window:
        inside += f" and {place} >= {end} - {shape.window}"
    score = f"sums[i, l] * T.float32({shape.scale!r})"
    score = f"capped({score})" if shape.cap else score
    before = f"highest[{row}]"
    rounded = each(scored, "powers[i, b * 16 + l] = T.cast(scores[i, b, l], 'bfloat16')")
    rounded = rounded if shape.rounded else []
    return [
        *each(scored, "largest[i, l] = " + LOWEST, 0),
        f"for b in range(({left} + 15) // 16):",
        *each(scored, "sums[i, l] = T.float32(0)"),
        *_products(shape, scored, row),
        *each(scored, f"scores[i, b, l] = T.Select({inside}, {score}, {LOWEST})"),
        *each(scored, "largest[i, l] = T.max(largest[i, l], scores[i, b, l])"),
        *reached_lines(scored, before, "power"),
        *each(scored, f"sums[i, l] = totals[{row}, l] * grown[i]", 0),
        f"for b in range(({left} + 15) // 16):",
        *each(scored, f"scores[i, b, l] = power(scores[i, b, l], {before})"),
        *each(scored, "sums[i, l] = sums[i, l] + scores[i, b, l]"),
        *rounded,
        *each(scored, f"totals[{row}, l] = sums[i, l]", 0),
        *_mixed(shape, tiles, left),
    ]


def _products(shape: CacheShape, scored: int, row: str) -> list[str]:
    """The products of a tile's queries with the keys of a vector of positions."""
    if shape.rounded:
        query = f"queries|{row}, d * 2"
        products = pair_products(scored, [(0, POSITIONS)], "sums", query, "keys|b, d", 8)
        return [f"    for d in range({shape.size // 2}):", *products]
    product = f"queries[{row}, d] * keys[b, d, l]"
    return [
        f"    for d in range({shape.size}):",
        *each(scored, f"sums[i, l] = sums[i, l] + {product}", 8),
    ]


def _mixed(shape: CacheShape, tiles: _Tiles, left: str) -> list[str]:
    """The sums of values of a tile, some rows and some vectors of their elements at a time."""
    scored, mixed, lanes, size = tiles.scored, tiles.mixed, shape.lanes, shape.size
    width = _VECTORS * lanes
    lines = [f"for m in T.unroll({scored // mixed}):"]
    for begin in range(0, size, width):
        end = min(begin + width, size)
        parts = [(at, min(lanes, end - at)) for at in range(begin, end, lanes)]
        place = f"mixed[r * {scored} + m * {mixed} + i, d]"
        lines += [
            *vectors(mixed, parts, f"part[i, d] = {place} * grown[m * {mixed} + i]", 4),
            *_weighed(shape, mixed, parts, left),
            *vectors(mixed, parts, f"{place} = part[i, d]", 4),
        ]
    return lines


def _weighed(shape: CacheShape, mixed: int, parts: list[tuple[int, int]], left: str) -> list[str]:
    """The sum of the values of a block's positions by the powers of some rows."""
    if shape.rounded:
        power = f"powers|m * {mixed} + i, n * 2"
        return [
            f"    for n in range(({left} + 1) // 2):",
            *pair_products(mixed, parts, "part", power, "values|n", 8),
        ]
    weight = f"scores[m * {mixed} + i, n // 16, n % 16]"
    return [
        f"    for n in range({left}):",
        *vectors(mixed, parts, f"part[i, d] = part[i, d] + {weight} * values[n, d]", 8),
    ]
