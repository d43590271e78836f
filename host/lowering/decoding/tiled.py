"""Attention of a few rows over a cache: the scores of all positions are computed, and then their softmax."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from host.lowering.decoding.lines import LOWEST, POSITIONS, Body, Split, each, indented, row_place, vectors
from host.lowering.decoding.shape import CacheShape

# Bytes of keys, and of values, by which they are fetched ahead.
_LINE_BYTES, _AHEAD_BYTES = 64, 8192


@dataclass(frozen=True)
class _Span:
    """The positions that a tile reads, as texts.

    Attributes:
        first: first block of 16 positions.
        blocks: how many there are.
        last: one more than the last position.
        step: blocks from one to the next.
    """

    first: str
    blocks: str
    last: str
    step: int = 1

    def block(self, number: str) -> str:
        """Text of one of the blocks."""
        return f"{self.first} + {number}" if self.step == 1 else f"{self.first} + ({number}) * {self.step}"


def tiled(shape: CacheShape, split: Split | None = None) -> Body:
    """The text of a head of keys, whose number is `vh`.

    Parts take the blocks in turn: so a position is of the same part however long the text is, and the rows of
    a call have the bits that they have in a call of one token.

    Args:
        shape: extents of the function.
        split: the part of the positions that is computed, of which sums are left; None for the result.
    """
    owned = "" if split is None else f"place // {POSITIONS} % {split.count} == {split.number}"
    return Body(_buffers(shape, split), _tiles(shape, split), owned)


def _buffers(shape: CacheShape, split: Split | None) -> list[str]:
    tile, blocks = shape.tile, shape.capacity // POSITIONS
    if split is not None:
        blocks = -(-blocks // split.count)
    return [
        f'scores = T.sblock_alloc_buffer(({tile}, {blocks}, {POSITIONS}), "float32")',
        f'sums = T.sblock_alloc_buffer(({_held(shape) * tile}, {POSITIONS}), "float32", scope="local")',
        f'largest = T.sblock_alloc_buffer(({tile}, {POSITIONS}), "float32", scope="local")',
        f'highest = T.sblock_alloc_buffer(({tile},), "float32", scope="local")',
        f'mixed = T.sblock_alloc_buffer(({tile}, {shape.size}), "float32", scope="local")',
    ]


def _tiles(shape: CacheShape, split: Split | None) -> list[str]:
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
    span = _span(first, last, split)
    query = f"query[{row} // {group}, vh * {group} + {row} % {group}, d]"
    place = f"({span.block('b')}) * 16 + l"
    inside = f"{place} < {end}" + (f" and {place} >= {low}" if shape.window else "")
    score = "sums[i, l]"
    by_value: list[str] = []
    if shape.scaled:
        score += f" * T.cast(key_scales[vh, {span.block('b')}, l], 'float32')"
        scaled = f"scores[i, b, l] * T.cast(value_scales[vh, {span.block('b')}, l], 'float32')"
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


def _span(first: str, last: str, split: Split | None) -> _Span:
    """The positions of a tile that reads from block `first` on to before `last`, or those of a part."""
    blocks = f"({last} + 15) // 16 - {first}"
    if split is None:
        return _Span(first, f"({blocks})", last)
    own = f"({first} + ({split.number} - {first}) % {split.count})"
    blocks = f"({last} + 15) // 16 - {own} + {split.count - 1}"
    return _Span(own, f"T.max(({blocks}) // {split.count}, 0)", last, split.count)


def _held(shape: CacheShape) -> int:
    """Sums that a row's products need place for: those at once, and the first where others come later."""
    return shape.parts_at_once + (1 if shape.parts > shape.parts_at_once else 0)


def _scores(shape: CacheShape, query: str, span: _Span) -> list[str]:
    """Text of the sums over a block of keys, in parts that do not wait for one another.

    Where registers hold few of the parts at once, the others follow, and are added in the same order.
    """
    tile, parts, count = shape.tile, shape.parts, shape.parts_at_once
    key = f"key_cache[vh, {span.block('b')}, d, l]"
    statement = f"sums[i, l] = sums[i, l] + {query} * T.cast({key}, 'float32')"
    if shape.on_gpu:
        empty = each(tile, "sums[i, l] = T.float32(0)", 8)
        return [*empty, f"        for d in range({shape.size}):", *each(tile, statement, 12)]
    lines = []
    for part in range(0, parts, count):
        # The first sum stays where it is.
        held = 0 if part == 0 else 1
        lines += each(count * tile, f"{_sum(held * tile)} = T.float32(0)", 8)
        lines.append(f"        for k in range({shape.size // parts}):")
        for number in range(count):
            if part == 0:
                fetched = range(number * parts // count, (number + 1) * parts // count)
                lines += _fetched_keys(shape, span, fetched)
            own = statement.replace("sums[i, l]", _sum((held + number) * tile))
            lines += each(tile, own.replace(", d", f", k * {parts} + {part + number}"), 12)
        for other in range(1, held + count):
            lines += each(tile, f"sums[i, l] = sums[i, l] + {_sum(other * tile)}", 8)
    return lines


def _sum(first: int) -> str:
    """A lane of the sum of a row of a tile, whose sums begin at `first`."""
    return f"sums[{first} + i, l]" if first else "sums[i, l]"


def _fetched_keys(shape: CacheShape, span: _Span, parts: Iterable[int]) -> list[str]:
    """Text that fetches the keys of these parts of a later block, none behind the last one."""
    line = max(_LINE_BYTES // (POSITIONS * shape.element_bytes), 1)
    ahead = max(_AHEAD_BYTES // (shape.size * POSITIONS * shape.element_bytes), 1)
    block = "vh, " + span.block(f"T.min(b + {ahead}, {span.blocks} - 1)")
    places = (f"{block}, k * {shape.parts} + {part}, 0" for part in parts if part % line == 0)
    return [f"            T.evaluate(fetch(T.address_of(key_cache[{place}])))" for place in places]


def _mixed(shape: CacheShape, span: _Span) -> list[str]:
    """Text of the sums of values."""
    lines = vectors(shape.tile, shape.vectors, "mixed[i, d] = T.float32(0)", 4)
    row = shape.size * shape.element_bytes
    ahead = max(_AHEAD_BYTES // row, 1)
    if span.step == 1:
        first, count = f"{span.first} * 16", f"{span.last} - {span.first} * 16"
        later = f"{first} + T.min(n + {ahead}, {count} - 1)"
        loops, indent = [f"    for n in range({count}):"], 8
        score, place = "n // 16, n % 16", f"{first} + n"
    else:
        block = f"({span.block('b')}) * 16"
        later = span.block(f"T.min(b + {max(ahead // POSITIONS, 1)}, {span.blocks} - 1)")
        later = f"({later}) * 16 + n"
        loops = [
            f"    for b in range({span.blocks}):",
            f"        for n in range(T.max(T.min({span.last} - {block}, {POSITIONS}), 0)):",
        ]
        indent, score, place = 12, "b, n", f"{block} + n"
    value = f"T.cast(value_cache[vh, {place}, d], 'float32')"
    added = f"mixed[i, d] = mixed[i, d] + scores[i, {score}] * {value}"
    fetches = indented(_fetched_values(shape, later), indent)
    return [*lines, *loops, *fetches, *vectors(shape.tile, shape.vectors, added, indent)]


def _fetched_values(shape: CacheShape, position: str) -> list[str]:
    """Text that fetches the values of a later position."""
    step = _LINE_BYTES // shape.element_bytes
    return [
        f"T.evaluate(fetch(T.address_of(value_cache[vh, {position}, {begin}])))"
        for begin in ([] if shape.on_gpu else range(0, shape.size, step))
    ]
