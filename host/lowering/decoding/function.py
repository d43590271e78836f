"""The function of attention over a cache: T new rows of H heads, each with D elements.

Keys of 16 positions are vectors: key_cache (Hk, C / 16, D, 16); values are rows: value_cache (Hk, C, D). The
function writes the new keys and values to their places first. Then it computes, for a few rows at a time,
scores of all positions up to the last one that any of the rows may read, their softmax, and the mean of the
values. Where there are many rows, `blocked` is how.

Caches of bytes have a scale in half precision for each position of a head: key_scales and value_scales
(Hk, C / 16, 16). Elements are number * scale, and the largest of a position is 127 times its scale.

Loops over positions end where the text ends, so that the function is one block for each head of keys whose
inside no schedule changes: rows of a tile and vectors are chosen here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from host.lowering.decoding.blocked import blocked_tiles
from host.lowering.decoding.lines import LOWEST, POSITIONS, each, fetched, vectors
from host.lowering.expressions.math import exp_below, number, tanh
from host.lowering.graph import Node
from host.lowering.script import function_of_script

BLOCK = "cached_attention"
# Annotation of the block, see `CacheShape.stated`: scale, cap and window as JSON.
OPTIONS = "edgetlm.cached_attention"
# Rows of a tile at most, and vectors of sums that its values may take.
_MOST_ROWS, _MOST_SUMS = 8, 16
# Sums of products that a row is divided into, as each addition waits for the one before it; vectors of all of
# them at most.
_PARTS, _MOST_PART_VECTORS = (1, 2, 4), 8
# Bytes of keys, and of values, by which they are fetched ahead.
_LINE_BYTES, _AHEAD_BYTES = 64, 8192


@dataclass(frozen=True)
class CacheShape:
    """The extents of a function.

    Attributes:
        rows: new tokens, T.
        heads: of queries, H.
        key_heads: Hk, a divisor of H.
        size: elements of a head, D.
        capacity: positions of the cache, C, a multiple of 16.
        window: positions that a token reads at most, itself included; 0 for all.
        scale: of the scores.
        cap: scaled scores become cap * tanh(score / cap); 0 for none.
        lanes: fp32 elements of the target's vector.
        kept: type of the elements of the caches.
        stated: whether the function's block carries `OPTIONS`: a GPU's rule writes a program of its own, and
            does not find them in extents.
    """

    rows: int
    heads: int
    key_heads: int
    size: int
    capacity: int
    window: int
    scale: float
    lanes: int
    kept: str = "float32"
    cap: float = 0.0
    stated: bool = False

    @property
    def scaled(self) -> bool:
        """Whether the caches have scales."""
        return self.kept == "int8"

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the caches."""
        return int(tvm.DataType(self.kept).itemsize)

    @property
    def parts(self) -> int:
        """Sums that the products of a query and a key are added up in, side by side."""
        vectors = self.tile * -(-POSITIONS // self.lanes)
        fitting = [n for n in _PARTS if n * vectors <= _MOST_PART_VECTORS and self.size % n == 0]
        # A GPU's rule writes a program of its own.
        return 1 if self.stated else max(fitting, default=1)

    @property
    def group(self) -> int:
        """Heads of queries that share a head of keys."""
        return self.heads // self.key_heads

    @property
    def tile(self) -> int:
        """Rows that are computed together: each key and value is loaded once for them."""
        vectors = -(-self.size // self.lanes)
        rows = self.rows * self.group
        fitting = max(1, _MOST_SUMS // vectors)
        return max(n for n in range(1, min(_MOST_ROWS, fitting, rows) + 1) if rows % n == 0)


def cached_attention_function(node: Node) -> tirx.PrimFunc:
    """The function of a "cached_attention" node: query, key, value, position, both caches, the result.

    The scales of both caches, where there are some, come before these.
    """
    shape: CacheShape = node.attrs["extents"]

    def capped(score: Any) -> Any:
        return tanh(score * number(1.0 / shape.cap)) * number(shape.cap)

    return function_of_script(
        _text(shape), power=exp_below, capped=capped, fetch=fetched, nearest=tirx.nearbyint
    )


def _text(shape: CacheShape) -> str:
    """The function of cached attention as text of TVMScript."""
    rows, heads, key_heads, size = shape.rows, shape.heads, shape.key_heads, shape.size
    capacity = shape.capacity
    blocks = capacity // POSITIONS
    blocked = None if shape.stated else blocked_tiles(shape, _start(shape))
    body = [*_append(shape), *(_tiles(shape) if blocked is None else blocked.lines)]
    allocated = _buffers(shape) if blocked is None else blocked.buffers
    if shape.scaled:
        allocated = [*allocated, 'bound = T.sblock_alloc_buffer((1,), "float32", scope="local")']
    buffers = "\n".join(" " * 12 + line for line in allocated)
    lines = "\n".join(" " * 12 + line for line in body)
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    query: T.Buffer(({rows}, {heads}, {size}), "float32"),
    key: T.Buffer(({rows}, {key_heads}, {size}), "float32"),
    value: T.Buffer(({rows}, {key_heads}, {size}), "float32"),
    position: T.Buffer((1,), "int32"),
{_scales(shape)}    key_cache: T.Buffer(({key_heads}, {blocks}, {size}, {POSITIONS}), "{shape.kept}"),
    value_cache: T.Buffer(({key_heads}, {capacity}, {size}), "{shape.kept}"),
    output: T.Buffer(({rows}, {heads}, {size}), "float32"),
) -> None:
    for h in range({key_heads}):
        with T.sblock("{BLOCK}"):
            vh = T.axis.spatial({key_heads}, h)
            T.sblock_attr({{"edgetlm.whole": 1{_stated(shape)}}})
            T.reads(
                query[0:{rows}, vh * {shape.group} : vh * {shape.group} + {shape.group}, 0:{size}],
                key[0:{rows}, vh, 0:{size}],
                value[0:{rows}, vh, 0:{size}],
                position[0],
            )
            T.writes(
{_scales_written(shape)}                key_cache[vh, 0:{blocks}, 0:{size}, 0:{POSITIONS}],
                value_cache[vh, 0:{capacity}, 0:{size}],
                output[0:{rows}, vh * {shape.group} : vh * {shape.group} + {shape.group}, 0:{size}],
            )
{buffers}
{lines}
"""


def _scales(shape: CacheShape) -> str:
    """Text of the parameters that are the scales of the caches; none where these have none."""
    extents = f"({shape.key_heads}, {shape.capacity // POSITIONS}, {POSITIONS})"
    names = ("key_scales", "value_scales") if shape.scaled else ()
    return "".join(f'    {name}: T.Buffer({extents}, "float16"),\n' for name in names)


def _scales_written(shape: CacheShape) -> str:
    names = ("key_scales", "value_scales") if shape.scaled else ()
    place = f"[vh, 0:{shape.capacity // POSITIONS}, 0:{POSITIONS}]"
    return "".join(f"                {name}{place},\n" for name in names)


def _buffers(shape: CacheShape) -> list[str]:
    tile, blocks = shape.tile, shape.capacity // POSITIONS
    return [
        f'scores = T.sblock_alloc_buffer(({tile}, {blocks}, {POSITIONS}), "float32")',
        f'sums = T.sblock_alloc_buffer(({shape.parts * tile}, {POSITIONS}), "float32", scope="local")',
        f'largest = T.sblock_alloc_buffer(({tile}, {POSITIONS}), "float32", scope="local")',
        f'highest = T.sblock_alloc_buffer(({tile},), "float32", scope="local")',
        f'mixed = T.sblock_alloc_buffer(({tile}, {shape.size}), "float32", scope="local")',
    ]


def _stated(shape: CacheShape) -> str:
    """Text of a further annotation."""
    options = json.dumps({"scale": shape.scale, "window": shape.window, "cap": shape.cap})
    return f', "{OPTIONS}": {options!r}' if shape.stated else ""


def _start(shape: CacheShape) -> str:
    """Text of the position of the first row, bounded so that all rows fit, whatever the caller gives."""
    return f"T.max(T.min(position[0], {shape.capacity - shape.rows}), 0)"


def _append(shape: CacheShape) -> list[str]:
    start, kept = _start(shape), shape.kept
    place = f"({start} + t) // 16, d, ({start} + t) % 16"
    if shape.scaled:
        at = f"[vh, ({start} + t) // 16, ({start} + t) % 16]"
        keys = _append_bytes(shape, "key", f"key_cache[vh, {place}]", at)
        return [
            f"for t in range({shape.rows}):",
            *keys,
            *_append_bytes(shape, "value", f"value_cache[vh, {start} + t, d]", at),
        ]
    return [
        f"for t in range({shape.rows}):",
        f"    for d in range({shape.size}):",
        f"        key_cache[vh, {place}] = T.cast(key[t, vh, d], '{kept}')",
        f"    for d in T.vectorized({shape.size}):",
        f"        value_cache[vh, {start} + t, d] = T.cast(value[t, vh, d], '{kept}')",
    ]


def _append_bytes(shape: CacheShape, name: str, element: str, at: str) -> list[str]:
    """Text that writes a row of keys or values as bytes, and its scale."""
    scale = f"{name}_scales{at}"
    return [
        "    bound[0] = T.float32(0)",
        f"    for d in range({shape.size}):",
        f"        bound[0] = T.max(bound[0], T.abs({name}[t, vh, d]))",
        f"    {scale} = T.cast(T.min(bound[0] / T.float32(127), T.float32(65504)), 'float16')",
        # By the scale as it is kept; a row of zeros has none.
        f"    bound[0] = T.cast({scale}, 'float32')",
        "    bound[0] = T.Select(bound[0] > T.float32(0), T.float32(1) / bound[0], T.float32(0))",
        f"    for d in range({shape.size}):",
        f"        {element} = T.cast(T.max(T.min(nearest({name}[t, vh, d] * bound[0]), "
        "T.float32(127)), T.float32(-127)), 'int8')",
    ]


def _tiles(shape: CacheShape) -> list[str]:
    """Text of the loop over tiles of rows: row r is token r // G and head r % G of its group."""
    group, tile = shape.group, shape.tile
    count = shape.rows * group // tile
    # One more than the last position that a row may read, of this row and of the tile's last one.
    row = f"(r * {tile} + i)"
    end = f"({_start(shape)} + {row} // {group} + 1)"
    last = f"({_start(shape)} + (r * {tile} + {tile - 1}) // {group} + 1)"
    low = f"T.max({end} - {shape.window}, 0)" if shape.window else "0"
    first_row = f"({_start(shape)} + r * {tile} // {group} + 1)"
    first = f"(T.max({first_row} - {shape.window}, 0) // 16)" if shape.window else "0"
    blocks = f"(({last} + 15) // 16 - {first})"
    query = f"query[{row} // {group}, vh * {group} + {row} % {group}, d]"
    output = f"output[{row} // {group}, vh * {group} + {row} % {group}, d]"
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
    lanes = shape.lanes
    parts = [(start, min(lanes, shape.size - start)) for start in range(0, shape.size, lanes)]
    return [
        f"for r in range({count}):",
        *each(tile, "largest[i, l] = " + LOWEST),
        f"    for b in range({blocks}):",
        *_scores(shape, query, first, blocks),
        *each(tile, f"scores[i, b, l] = {within}", 8),
        *each(tile, "largest[i, l] = T.max(largest[i, l], scores[i, b, l])", 8),
        f"    for i in T.unroll({tile}):",
        "        highest[i] = largest[i, 0]",
        "        for n in T.unroll(15):",
        "            highest[i] = T.max(highest[i], largest[i, n + 1])",
        *each(tile, "sums[i, l] = T.float32(0)"),
        f"    for b in range({blocks}):",
        *each(tile, "scores[i, b, l] = power(scores[i, b, l], highest[i])", 8),
        *each(tile, "sums[i, l] = sums[i, l] + scores[i, b, l]", 8),
        *by_value,
        f"    for i in T.unroll({tile}):",
        "        highest[i] = sums[i, 0]",
        "        for n in T.unroll(15):",
        "            highest[i] = highest[i] + sums[i, n + 1]",
        *vectors(tile, parts, "mixed[i, d] = T.float32(0)", 4),
        f"    for n in range({last} - {first} * 16):",
        *_fetched_values(shape, first, f"{last} - {first} * 16"),
        *vectors(
            tile,
            parts,
            "mixed[i, d] = mixed[i, d] + scores[i, n // 16, n % 16]"
            f" * T.cast(value_cache[vh, {first} * 16 + n, d], 'float32')",
            8,
        ),
        *vectors(tile, parts, f"{output} = mixed[i, d] / highest[i]", 4),
    ]


def _scores(shape: CacheShape, query: str, first: str, blocks: str) -> list[str]:
    """Text of the sums over a block of keys, in parts that do not wait for one another."""
    tile, parts, size = shape.tile, shape.parts, shape.size
    key = f"key_cache[vh, {first} + b, d, l]"
    statement = f"sums[i, l] = sums[i, l] + {query} * T.cast({key}, 'float32')"
    lines = each(parts * tile, "sums[i, l] = T.float32(0)", 8)
    if shape.stated:
        return [*lines, f"        for d in range({size}):", *each(tile, statement, 12)]
    lines.append(f"        for k in range({size // parts}):")
    line = max(_LINE_BYTES // (POSITIONS * shape.element_bytes), 1)
    ahead = max(_AHEAD_BYTES // (size * POSITIONS * shape.element_bytes), 1)
    for part in range(parts):
        element = f"k * {parts} + {part}"
        if part % line == 0:
            place = f"vh, {first} + T.min(b + {ahead}, {blocks} - 1), {element}, 0"
            lines.append(f"            T.evaluate(fetch(T.address_of(key_cache[{place}])))")
        own = statement.replace("sums[i, l]", f"sums[{part * tile} + i, l]").replace(", d", f", {element}")
        lines += each(tile, own, 12)
    for part in range(1, parts):
        lines += each(tile, f"sums[i, l] = sums[i, l] + sums[{part * tile} + i, l]", 8)
    return lines


def _fetched_values(shape: CacheShape, first: str, count: str) -> list[str]:
    """Text that fetches the values of a later position, none behind the last one."""
    row = shape.size * shape.element_bytes
    ahead, step = max(_AHEAD_BYTES // row, 1), _LINE_BYTES // shape.element_bytes
    place = f"vh, {first} * 16 + T.min(n + {ahead}, {count} - 1)"
    return [
        f"        T.evaluate(fetch(T.address_of(value_cache[{place}, {begin}])))"
        for begin in ([] if shape.stated else range(0, shape.size, step))
    ]
