"""The program of attention over a cache: kernels that append, attend, and combine, as text of TVMScript.

A block attends with `tile` rows of one head of keys; row r is token r // G and head r % G of its group. Its
warps, and those of the `splits` blocks of the same rows, take chunks of 32 positions in turn: each lane has
the score of one position, then elements of the mean of the values. A warp has a maximum and a sum of its own
for every row, and computes sums again where the maximum grows. What the warps of a block have is added up
in shared memory, what blocks have by a third kernel. There is no barrier in the loop over the positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from host.lowering.decoding.lines import LOWEST, POSITIONS
from host.lowering.decoding.shape import CacheShape
from host.schedules.cached_attention import buffers_of
from host.schedules.cuda import scripts
from host.schedules.script import put_script

# Warps of a block of the kernels that append and combine, and its threads.
_WARPS = 4
_THREADS = _WARPS * scripts.WARP


@dataclass(frozen=True)
class AttentionTiles:
    """How a program divides its work.

    Attributes:
        tile: rows of a block, a divisor of the rows of a head of keys.
        warps: of a block.
        splits: blocks that share the positions of the same rows.
    """

    tile: int
    warps: int
    splits: int

    def elements(self, size: int) -> int:
        """Elements of a row that a lane adds up."""
        return -(-size // scripts.WARP)

    def registers(self, size: int) -> int:
        """Registers of a thread, estimated: sums, maxima and scores of each row, and addresses."""
        return self.tile * (self.elements(size) + 3) + 40

    def shared_bytes(self, size: int) -> int:
        """Shared memory of a block: its queries, and what its warps have."""
        return 4 * self.tile * (size + self.warps * (size + 2))


def put_tiles(schedule: s_tir.Schedule, shape: CacheShape, tiles: AttentionTiles) -> None:
    """Puts a program into the place of the whole function.

    Args:
        schedule: of the function.
        shape: of the attention, with all that the function states; its `lanes` are not used.
        tiles: of the program.
    """
    parts = [_append(shape), _attend(shape, tiles)]
    parts += [_combine(shape, tiles)] if tiles.splits > 1 else []
    rows, heads, size = shape.rows, shape.heads, shape.size
    lines = []
    if tiles.splits > 1:
        lines = [
            f'means = T.sblock_alloc_buffer(({tiles.splits}, {rows}, {heads}, {size}), "float32")',
            f'tops = T.sblock_alloc_buffer(({tiles.splits}, {rows}, {heads}), "float32")',
            f'totals = T.sblock_alloc_buffer(({tiles.splits}, {rows}, {heads}), "float32")',
        ]
    lines += [line for part in parts for line in part]

    def capped(score: Any) -> Any:
        return tirx.tanh(score * tirx.const(1.0 / shape.cap, "float32")) * tirx.const(shape.cap, "float32")

    given = buffers_of(schedule, shape)
    put_script(schedule, lines, **given, **scripts.WARP_FUNCTIONS, exp=tirx.exp, capped=capped)


def _append(shape: CacheShape) -> list[str]:
    """Text of the kernel that writes the new keys and values to their places."""
    heads, size = shape.key_heads, shape.size
    count = shape.rows * heads * size
    n = f"(block * {_THREADS} + warp * {scripts.WARP} + lane)"
    token, head, element = f"({n} // {heads * size})", f"({n} // {size} % {heads})", f"({n} % {size})"
    place = f"({shape.start} + {token})"
    return [
        *scripts.bound(-(-count // _THREADS), _WARPS, "append"),
        f"                if {n} < {count}:",
        f"                    key_cache[{head}, {place} // {POSITIONS}, {element}, {place} % {POSITIONS}] ="
        f" T.cast(key[{token}, {head}, {element}], '{shape.kept}')",
        f"                    value_cache[{head}, {place}, {element}] ="
        f" T.cast(value[{token}, {head}, {element}], '{shape.kept}')",
    ]


def _attend(shape: CacheShape, tiles: AttentionTiles) -> list[str]:
    """Text of the kernel that attends."""
    size, tile, warps = shape.size, tiles.tile, tiles.warps
    tiled = shape.rows * shape.group // tile
    each = tiles.elements(size)
    head, first_row = f"(block // {tiles.splits * tiled})", f"(block // {tiles.splits} % {tiled} * {tile})"
    lines = scripts.bound(shape.key_heads * tiled * tiles.splits, warps, "attend")
    body = [
        *(
            f'{name} = T.sblock_alloc_buffer(({extents}), "float32", scope="{scope}")'
            for name, extents, scope in (
                ("rows", f"{tile}, {size}", "shared"),
                ("warp_means", f"{warps}, {tile}, {size}", "shared"),
                ("warp_tops", f"{warps}, {tile}", "shared"),
                ("warp_totals", f"{warps}, {tile}", "shared"),
                ("scores", f"{tile},", "local"),
                ("top", f"{tile},", "local"),
                ("sums", f"{tile},", "local"),
                ("mixed", f"{tile}, {each}", "local"),
                ("old", "1,", "local"),
                ("shared_of", "2,", "local"),
            )
        ),
        *_load_queries(shape, tiles, head, first_row),
        *_positions(shape, tiles, head, first_row),
        *_join(shape, tiles, head, first_row),
    ]
    return lines + [" " * 16 + line for line in body]


def _row(shape: CacheShape, head: str, first_row: str, i: str) -> str:
    """Text of the token and the head of queries of a row of a block."""
    group = shape.group
    return f"({first_row} + {i}) // {group}, {head} * {group} + ({first_row} + {i}) % {group}"


def _load_queries(shape: CacheShape, tiles: AttentionTiles, head: str, first_row: str) -> list[str]:
    """Text of the copy of the queries of a block, scaled, into shared memory."""
    count, threads = tiles.tile * shape.size, tiles.warps * scripts.WARP
    n = f"(turn * {threads} + warp * {scripts.WARP} + lane)"
    i, d = f"({n} // {shape.size})", f"({n} % {shape.size})"
    return [
        f"for turn in range({-(-count // threads)}):",
        f"    if {n} < {count}:",
        f"        rows[{i}, {d}] ="
        f" query[{_row(shape, head, first_row, i)}, {d}] * T.float32({shape.scale!r})",
        "T.evaluate(T.tvm_storage_sync('shared'))",
    ]


def _positions(shape: CacheShape, tiles: AttentionTiles, head: str, first_row: str) -> list[str]:
    """Text of the loop over the chunks of a warp."""
    size, tile, start = shape.size, tiles.tile, shape.start
    each, group, count = tiles.elements(size), shape.group, tiles.warps * tiles.splits
    # One more than the last position that a row, and the last row of the block, may read.
    end = f"({start} + ({first_row} + i) // {group} + 1)"
    last = f"({start} + ({first_row} + {tile - 1}) // {group} + 1)"
    first = "0"
    if shape.window:
        least = f"({start} + {first_row} // {group} + 1 - {shape.window})"
        first = f"(T.max({least}, 0) // {POSITIONS} * {POSITIONS})"
    chunk = f"(turn * {count} + block % {tiles.splits} * {tiles.warps} + warp)"
    begin = f"({first} + {chunk} * {scripts.WARP})"
    place = f"({begin} + lane)"
    inside = f"{place} < {end}" + (f" and {place} >= {end} - {shape.window}" if shape.window else "")
    # Lanes behind the last position read some other one, and leave it out.
    bounded = f"T.min({place}, {shape.capacity - 1})"
    score = "capped(scores[i])" if shape.cap else "scores[i]"
    kept = f"T.cast(key_cache[{head}, {bounded} // {POSITIONS}, d, {bounded} % {POSITIONS}], 'float32')"
    column = f"(lane * {each} + e)"
    taken = f"T.cast(value_cache[{head}, {begin} + n, T.min({column}, {size - 1})], 'float32')"
    return [
        f"for i in T.unroll({tile}):",
        f"    top[i] = {LOWEST}",
        "    sums[i] = T.float32(0)",
        f"    for e in T.unroll({each}):",
        "        mixed[i, e] = T.float32(0)",
        # Warps whose first chunk lies behind the last position have no turn.
        f"for turn in range(({last} - {first} + {scripts.WARP * count - 1}) // {scripts.WARP * count}):",
        f"    for i in T.unroll({tile}):",
        "        scores[i] = T.float32(0)",
        f"    for d in range({size}):",
        f"        shared_of[0] = {kept}",
        f"        for i in T.unroll({tile}):",
        "            scores[i] = scores[i] + rows[i, d] * shared_of[0]",
        f"    for i in T.unroll({tile}):",
        "        old[0] = top[i]",
        f"        scores[i] = T.Select({inside}, {score}, {LOWEST})",
        "        top[i] = T.max(old[0], largest(scores[i]))",
        f"        scores[i] = T.Select({inside}, exp(scores[i] - top[i]), T.float32(0))",
        "        old[0] = exp(old[0] - top[i])",
        "        sums[i] = sums[i] * old[0] + total(scores[i])",
        f"        for e in T.unroll({each}):",
        "            mixed[i, e] = mixed[i, e] * old[0]",
        f"    for n in range(T.max(T.min({last} - {begin}, {scripts.WARP}), 0)):",
        f"        for e in T.unroll({each}):",
        f"            shared_of[0] = {taken}",
        f"            for i in T.unroll({tile}):",
        "                mixed[i, e] = mixed[i, e] + of_lane(scores[i], n) * shared_of[0]",
    ]


def _join(shape: CacheShape, tiles: AttentionTiles, head: str, first_row: str) -> list[str]:
    """Text of what adds up the warps of a block, and writes the result or the block's part of it."""
    size, tile, warps = shape.size, tiles.tile, tiles.warps
    each, threads = tiles.elements(size), warps * scripts.WARP
    count = tile * size
    n = f"(turn * {threads} + warp * {scripts.WARP} + lane)"
    i, d = f"({n} // {size})", f"({n} % {size})"
    row = _row(shape, head, first_row, i)
    split = f"block % {tiles.splits}"
    weight = f"exp(warp_tops[w, {i}] - old[0])"
    lines = [
        # The compiler lets what follows take the place of the queries.
        "T.evaluate(T.tvm_storage_sync('shared'))",
        f"for i in T.unroll({tile}):",
        "    if lane == 0:",
        "        warp_tops[warp, i] = top[i]",
        "        warp_totals[warp, i] = sums[i]",
        f"    for e in T.unroll({each}):",
        f"        if lane * {each} + e < {size}:",
        f"            warp_means[warp, i, lane * {each} + e] = mixed[i, e]",
        "T.evaluate(T.tvm_storage_sync('shared'))",
        f"for turn in range({-(-count // threads)}):",
        f"    if {n} < {count}:",
        f"        old[0] = {LOWEST}",
        f"        for w in range({warps}):",
        f"            old[0] = T.max(old[0], warp_tops[w, {i}])",
        "        shared_of[0] = T.float32(0)",
        "        shared_of[1] = T.float32(0)",
        f"        for w in range({warps}):",
        f"            shared_of[0] = shared_of[0] + warp_means[w, {i}, {d}] * {weight}",
        f"            shared_of[1] = shared_of[1] + warp_totals[w, {i}] * {weight}",
    ]
    if tiles.splits == 1:
        return [*lines, f"        output[{row}, {d}] = shared_of[0] / shared_of[1]"]
    return [
        *lines,
        f"        means[{split}, {row}, {d}] = shared_of[0]",
        f"        if {d} == 0:",
        f"            tops[{split}, {row}] = old[0]",
        f"            totals[{split}, {row}] = shared_of[1]",
    ]


def _combine(shape: CacheShape, tiles: AttentionTiles) -> list[str]:
    """Text of the kernel that adds up the parts of the blocks."""
    heads, size = shape.heads, shape.size
    count = shape.rows * heads * size
    n = f"(block * {_THREADS} + warp * {scripts.WARP} + lane)"
    row = f"{n} // {heads * size}, {n} // {size} % {heads}"
    body = [
        'most = T.sblock_alloc_buffer((1,), "float32", scope="local")',
        'part = T.sblock_alloc_buffer((2,), "float32", scope="local")',
        f"if {n} < {count}:",
        f"    most[0] = {LOWEST}",
        f"    for s in range({tiles.splits}):",
        f"        most[0] = T.max(most[0], tops[s, {row}])",
        "    part[0] = T.float32(0)",
        "    part[1] = T.float32(0)",
        f"    for s in range({tiles.splits}):",
        f"        part[0] = part[0] + means[s, {row}, {n} % {size}] * exp(tops[s, {row}] - most[0])",
        f"        part[1] = part[1] + totals[s, {row}] * exp(tops[s, {row}] - most[0])",
        f"    output[{row}, {n} % {size}] = part[0] / part[1]",
    ]
    return [*scripts.bound(-(-count // _THREADS), _WARPS, "combine"), *(" " * 16 + line for line in body)]
