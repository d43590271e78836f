"""The function of attention over a cache: T new rows of H heads, each with D elements.

Keys of 16 positions are vectors: key_cache (Hk, C / 16, D, 16); values are rows: value_cache (Hk, C, D). The
function writes the new keys and values to their places first. Then it computes, for a few rows at a time,
scores of all positions up to the last one that any of the rows may read, their softmax, and the mean of the
values (`tiled`). Where there are many rows, `blocked` is how.

Caches of bytes have a scale in half precision for each position of a head: key_scales and value_scales
(Hk, C / 16, 16). Elements are number * scale, and the largest of a position is 127 times its scale.

Loops over positions end where the text ends, so that the function is one block for each head of keys whose
inside no schedule changes: rows of a tile and vectors are chosen here. Where several threads share the
positions of a head, a program has a block for each part of them, which `attention_body` writes too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx

from host.lowering.decoding.blocked import blocked
from host.lowering.decoding.lines import POSITIONS, Body, Split, fetched, indented
from host.lowering.decoding.matrices import weight_scale
from host.lowering.decoding.pairs import paired
from host.lowering.decoding.shape import BLOCK, OPTIONS, CacheShape
from host.lowering.decoding.tiled import tiled
from host.lowering.expressions.math import exp_below, number, tanh, weight_below
from host.lowering.graph import Node
from host.lowering.script import function_of_script


def cached_attention_function(node: Node) -> tirx.PrimFunc:
    """The function of a "cached_attention" node: query, key, value, position, both caches, the result.

    The scales of both caches, where there are some, come before these.
    """
    shape: CacheShape = node.attrs["extents"]
    return function_of_script(_text(shape), **script_functions(shape))


def script_functions(shape: CacheShape) -> dict[str, Any]:
    """The functions that texts name."""

    def capped(score: Any) -> Any:
        return tanh(score * number(1.0 / shape.cap)) * number(shape.cap)

    functions = {"power": exp_below, "capped": capped, "fetch": fetched, "nearest": tirx.nearbyint}
    if shape.in_tiles:
        # Rounded to bfloat16, weights need no last bits.
        functions["weight"] = partial(weight_below, scale=weight_scale(shape))
    return functions | ({"paired": paired} if shape.rounded else {})


def attention_body(shape: CacheShape, split: Split | None = None) -> Body:
    """The text of the block of one head of keys, whose number is `vh`.

    Args:
        shape: extents of the function.
        split: the part of the positions that the block takes: it writes those new keys and values that lie
            there, and leaves `lines.SUMS`, `MAXIMA` and `TOTALS`. None for all, and the result.
    """
    made = None if shape.on_gpu else blocked(shape, split)
    if made is None:
        made = tiled(shape, split)
    bound = ['bound = T.sblock_alloc_buffer((1,), "float32", scope="local")'] if shape.scaled else []
    return Body([*made.buffers, *bound], [*_append(shape, made.owned), *made.lines], made.owned)


def _text(shape: CacheShape) -> str:
    """The function of cached attention as text of TVMScript."""
    rows, heads, key_heads, size = shape.rows, shape.heads, shape.key_heads, shape.size
    capacity = shape.capacity
    blocks = capacity // POSITIONS
    body = attention_body(shape)
    lines = "\n".join(indented([*body.buffers, *body.lines], 12))
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
            T.sblock_attr({{"edgetlm.whole": 1, "{OPTIONS}": {shape.options!r}}})
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


def _append(shape: CacheShape, owned: str) -> list[str]:
    """Text that writes the new keys and values; of a part, those that are `owned`."""
    rows = _appended_row(shape)
    if owned:
        rows = [f"if {owned.replace('place', f'({shape.start} + t)')}:", *indented(rows, 4)]
    return [f"for t in range({shape.rows}):", *indented(rows, 4)]


def _appended_row(shape: CacheShape) -> list[str]:
    """Text that writes the keys and values of row `t`."""
    place, kept = f"({shape.start} + t)", shape.kept
    key, value = f"key_cache[vh, {place} // 16, d, {place} % 16]", f"value_cache[vh, {place}, d]"
    if shape.scaled:
        at = f"[vh, {place} // 16, {place} % 16]"
        return [*_bytes_of(shape, "key", key, at), *_bytes_of(shape, "value", value, at)]
    return [
        f"for d in range({shape.size}):",
        f"    {key} = T.cast(key[t, vh, d], '{kept}')",
        f"for d in T.vectorized({shape.size}):",
        f"    {value} = T.cast(value[t, vh, d], '{kept}')",
    ]


def _bytes_of(shape: CacheShape, name: str, element: str, at: str) -> list[str]:
    """Text that writes a row of keys or values as bytes, and its scale."""
    scale = f"{name}_scales{at}"
    return [
        "bound[0] = T.float32(0)",
        f"for d in range({shape.size}):",
        f"    bound[0] = T.max(bound[0], T.abs({name}[t, vh, d]))",
        f"{scale} = T.cast(T.min(bound[0] / T.float32(127), T.float32(65504)), 'float16')",
        # By the scale as it is kept; a row of zeros has none.
        f"bound[0] = T.cast({scale}, 'float32')",
        "bound[0] = T.Select(bound[0] > T.float32(0), T.float32(1) / bound[0], T.float32(0))",
        f"for d in range({shape.size}):",
        f"    {element} = T.cast(T.max(T.min(nearest({name}[t, vh, d] * bound[0]), "
        "T.float32(127)), T.float32(-127)), 'int8')",
    ]
