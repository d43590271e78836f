"""Attention of a few rows over a cache: the scores of all positions are computed, and then their softmax."""

from __future__ import annotations

from dataclasses import dataclass

from host.lowering.decoding.lines import LOWEST, POSITIONS, Body, Split, each, row_place, vectors
from host.lowering.decoding.shape import CacheShape

# Bytes of keys, and of values, by which they are fetched ahead.
_LINE_BYTES, _AHEAD_BYTES = 64, 8192


@dataclass(frozen=True)
class _Span:
    """The positions that a tile reads, as texts.

    Attributes:
        first: first block of 16 positions.
        blocks: how many there are.
        count: positions from the first of the first block to the last one.
    """

    first: str
    blocks: str
    count: str


def tiled(shape: CacheShape, split: Split | None = None) -> Body:
    """The text of a head of keys, whose number is `vh`.

    Args:
        shape: extents of the function.
        split: the part of the positions that is computed, of which sums are left; None for the result.
    """
    begin, behind = ("", "") if split is None else split.bounds(*_blocks(shape))
    lines = _tiles(shape, split, begin, behind)
    positions = None if split is None else (f"{begin} * {POSITIONS}", f"{behind} * {POSITIONS}")
    return Body(_buffers(shape, split), lines, positions)


def _blocks(shape: CacheShape) -> tuple[str, str]:
    """The first block that any row reads, and the one behind the last."""
    first = f"(T.max({shape.start} + 1 - {shape.window}, 0) // 16)" if shape.window else "0"
    return first, f"(({shape.start} + {shape.rows} + 15) // 16)"


def _buffers(shape: CacheShape, split: Split | None) -> list[str]:
    tile, blocks = shape.tile, shape.capacity // POSITIONS
    if split is not None:
        blocks = -(-blocks // split.count)
    return [
        f'scores = T.sblock_alloc_buffer(({tile}, {blocks}, {POSITIONS}), "float32")',
        f'sums = T.sblock_alloc_buffer(({shape.parts * tile}, {POSITIONS}), "float32", scope="local")',
        f'largest = T.sblock_alloc_buffer(({tile}, {POSITIONS}), "float32", scope="local")',
        f'highest = T.sblock_alloc_buffer(({tile},), "float32", scope="local")',
        f'mixed = T.sblock_alloc_buffer(({tile}, {shape.size}), "float32", scope="local")',
    ]


def _tiles(shape: CacheShape, split: Split | None, begin: str, behind: str) -> list[str]:
    """Text of the loop over tiles of rows: row r is token r // G and head r % G of its group."""
    group, tile = shape.group, shape.tile
    count = shape.rows * group // tile
    # One more than the last position that a row may read, of this row and of the tile's last one.
    row = f"(r * {tile} + i)"
    end = f"({shape.start} + {row} // {group} + 1)"
    last = f"({shape.start} + (r * {tile} + {tile - 1}) // {group} + 1)"
    low = f"T.max({end} - {shape.window}, 0)" if shape.window else "0"
    first_row = f"({shape.start} + r * {tile} // {group} + 1)"
    first = f"(T.max({first_row} - {shape.window}, 0) // 16)" if shape.window else "0"
    if split is None:
        span = _Span(first, f"(({last} + 15) // 16 - {first})", f"{last} - {first} * 16")
    else:
        first, last = f"T.max({first}, {begin})", f"T.min({last}, {behind} * 16)"
        blocks, positions = f"({last} + 15) // 16 - {first}", f"{last} - {first} * 16"
        span = _Span(first, f"T.max({blocks}, 0)", f"T.max({positions}, 0)")
    query = f"query[{row} // {group}, vh * {group} + {row} % {group}, d]"
    place = f"({first} + b) * 16 + l"
    inside = f"{place} < {end}" + (f" and {place} >= {low}" if shape.window else "")
    score = "sums[i, l]"
    by_value: list[str] = []
    if shape.scaled:
        score += f" * T.cast(key_scales[vh, {first} + b, l], 'float32')"
        scaled = f"scores[i, b, l] * T.cast(value_scales[vh, {first} + b, l], 'float32')"
        by_value = each(tile, f"scores[i, b, l] = {scaled}", 8)
    score += f" * T.float32({shape.scale!r})"
    score = f"capped({score})" if shape.cap else score
    within = f"T.Select({inside}, {score}, {LOWEST})"
    # Where the sums of a part go: none where the result is computed.
    kept = row_place(f"{row} // {group}", f"vh * {group} + {row} % {group}", split)
    result = "mixed[i, d]" if split is not None else "mixed[i, d] / highest[i]"
    return [
        f"for r in range({count}):",
        *each(tile, "largest[i, l] = " + LOWEST),
        f"    for b in range({span.blocks}):",
        *_scores(shape, query, span),
        *each(tile, f"scores[i, b, l] = {within}", 8),
        *each(tile, "largest[i, l] = T.max(largest[i, l], scores[i, b, l])", 8),
        f"    for i in T.unroll({tile}):",
        "        highest[i] = largest[i, 0]",
        "        for n in T.unroll(15):",
        "            highest[i] = T.max(highest[i], largest[i, n + 1])",
        *([f"        {kept.maximum} = highest[i]"] if split is not None else []),
        *each(tile, "sums[i, l] = T.float32(0)"),
        f"    for b in range({span.blocks}):",
        *each(tile, "scores[i, b, l] = power(scores[i, b, l], highest[i])", 8),
        *each(tile, "sums[i, l] = sums[i, l] + scores[i, b, l]", 8),
        *by_value,
        f"    for i in T.unroll({tile}):",
        "        highest[i] = sums[i, 0]",
        "        for n in T.unroll(15):",
        "            highest[i] = highest[i] + sums[i, n + 1]",
        *([f"        {kept.total} = highest[i]"] if split is not None else []),
        *_mixed(shape, span),
        *vectors(tile, shape.vectors, f"{kept.values} = {result}", 4),
    ]


def _scores(shape: CacheShape, query: str, span: _Span) -> list[str]:
    """Text of the sums over a block of keys, in parts that do not wait for one another."""
    tile, parts, size, first = shape.tile, shape.parts, shape.size, span.first
    key = f"key_cache[vh, {first} + b, d, l]"
    statement = f"sums[i, l] = sums[i, l] + {query} * T.cast({key}, 'float32')"
    lines = each(parts * tile, "sums[i, l] = T.float32(0)", 8)
    if shape.on_gpu:
        return [*lines, f"        for d in range({size}):", *each(tile, statement, 12)]
    lines.append(f"        for k in range({size // parts}):")
    line = max(_LINE_BYTES // (POSITIONS * shape.element_bytes), 1)
    ahead = max(_AHEAD_BYTES // (size * POSITIONS * shape.element_bytes), 1)
    for part in range(parts):
        element = f"k * {parts} + {part}"
        if part % line == 0:
            place = f"vh, {first} + T.min(b + {ahead}, {span.blocks} - 1), {element}, 0"
            lines.append(f"            T.evaluate(fetch(T.address_of(key_cache[{place}])))")
        own = statement.replace("sums[i, l]", f"sums[{part * tile} + i, l]").replace(", d", f", {element}")
        lines += each(tile, own, 12)
    for part in range(1, parts):
        lines += each(tile, f"sums[i, l] = sums[i, l] + sums[{part * tile} + i, l]", 8)
    return lines


def _mixed(shape: CacheShape, span: _Span) -> list[str]:
    """Text of the sums of values."""
    value = f"T.cast(value_cache[vh, {span.first} * 16 + n, d], 'float32')"
    return [
        *vectors(shape.tile, shape.vectors, "mixed[i, d] = T.float32(0)", 4),
        f"    for n in range({span.count}):",
        *_fetched_values(shape, span),
        *vectors(
            shape.tile,
            shape.vectors,
            f"mixed[i, d] = mixed[i, d] + scores[i, n // 16, n % 16] * {value}",
            8,
        ),
    ]


def _fetched_values(shape: CacheShape, span: _Span) -> list[str]:
    """Text that fetches the values of a later position, none behind the last one."""
    row = shape.size * shape.element_bytes
    ahead, step = max(_AHEAD_BYTES // row, 1), _LINE_BYTES // shape.element_bytes
    place = f"vh, {span.first} * 16 + T.min(n + {ahead}, {span.count} - 1)"
    return [
        f"        T.evaluate(fetch(T.address_of(value_cache[{place}, {begin}])))"
        for begin in ([] if shape.on_gpu else range(0, shape.size, step))
    ]
