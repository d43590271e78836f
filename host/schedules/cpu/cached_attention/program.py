"""The program of attention over a cache in which threads share the positions of a head of keys.

A block takes a part of the positions: it writes the new keys and values that lie there, and leaves, for every
row, the highest score of the part, the sum of the powers below it, and the sum of the values. A second loop
multiplies each part's sums by the power of the difference from the highest score of all, and adds them up, as
in Flash-Decoding (Dao et al. 2023). Parts that a short text leaves without positions weigh nothing.

The calling thread does all of this behind few positions, which take it less time than waking the others.
"""

from __future__ import annotations

from tvm import s_tir

from host.lowering.decoding.blocked import has_blocks
from host.lowering.decoding.function import attention_body, script_functions
from host.lowering.decoding.lines import MAXIMA, SUMS, TOTALS, Split, indented, vectors
from host.lowering.decoding.shape import BLOCK, CacheShape
from host.schedules.cached_attention import buffers_of
from host.schedules.script import put_script

# Vectors of a row that are added up together.
_VECTORS = 4


def put_split(schedule: s_tir.Schedule, shape: CacheShape, splits: int, shared_from: int) -> None:
    """Puts the program into the place of the whole function.

    Args:
        schedule: of the function.
        shape: of the attention, with all that the function states.
        splits: parts of the positions, more than one.
        shared_from: positions from which on other threads are woken for the parts.
    """
    rows, heads, size = shape.rows, shape.heads, shape.size
    read = f"{shape.start} + {rows}"
    read = f"T.min({read}, {shape.window + rows})" if shape.window else read
    lines = [
        f'{SUMS} = T.sblock_alloc_buffer(({splits}, {rows}, {heads}, {size}), "float32")',
        f'{MAXIMA} = T.sblock_alloc_buffer(({rows}, {heads}, {splits}), "float32")',
        f'{TOTALS} = T.sblock_alloc_buffer(({rows}, {heads}, {splits}), "float32")',
        f"if {read} < {shared_from}:",
        *indented(_parts(shape, splits, "T.serial"), 4),
        *indented(_merged(shape, splits, "T.serial"), 4),
        "else:",
        *indented(_parts(shape, splits, "T.parallel"), 4),
        # Few rows are added up before another thread wakes.
        *indented(_merged(shape, splits, "T.parallel" if has_blocks(shape) else "T.serial"), 4),
    ]
    put_script(schedule, lines, **buffers_of(schedule, shape), **script_functions(shape))


def _parts(shape: CacheShape, splits: int, loop: str) -> list[str]:
    """Text of the loop over the parts of all heads of keys."""
    body = attention_body(shape, Split("vp", splits))
    return [
        f"for n in {loop}({shape.key_heads * splits}):",
        f'    with T.sblock("{BLOCK}"):',
        f"        vh = T.axis.spatial({shape.key_heads}, n // {splits})",
        f"        vp = T.axis.spatial({splits}, n % {splits})",
        "        T.reads()",
        "        T.writes()",
        *indented([*body.buffers, *body.lines], 8),
    ]


def _merged(shape: CacheShape, splits: int, loop: str) -> list[str]:
    """Text of the loop that adds up the parts of each row, a few vectors at a time."""
    rows, heads, size = shape.rows, shape.heads, shape.size
    row = "vt, vq"
    body = [
        f'weights = T.sblock_alloc_buffer(({splits},), "float32", scope="local")',
        'merged = T.sblock_alloc_buffer((2,), "float32", scope="local")',
        f'summed = T.sblock_alloc_buffer((1, {size}), "float32", scope="local")',
        f"merged[0] = {MAXIMA}[{row}, 0]",
        f"for s in T.unroll({splits - 1}):",
        f"    merged[0] = T.max(merged[0], {MAXIMA}[{row}, s + 1])",
        f"for s in T.vectorized({splits}):",
        f"    weights[s] = power({MAXIMA}[{row}, s], merged[0])",
        "merged[1] = T.float32(0)",
        f"for s in T.unroll({splits}):",
        f"    merged[1] = merged[1] + {TOTALS}[{row}, s] * weights[s]",
    ]
    for first in range(0, len(shape.vectors), _VECTORS):
        few = shape.vectors[first : first + _VECTORS]
        body += [
            *vectors(1, few, "summed[i, d] = T.float32(0)", 0),
            f"for s in range({splits}):",
            *vectors(1, few, f"summed[i, d] = summed[i, d] + {SUMS}[s, {row}, d] * weights[s]", 4),
            *vectors(1, few, f"output[{row}, d] = summed[i, d] / merged[1]", 0),
        ]
    return [
        f"for n in {loop}({rows * heads}):",
        '    with T.sblock("merged"):',
        f"        vt = T.axis.spatial({rows}, n // {heads})",
        f"        vq = T.axis.spatial({heads}, n % {heads})",
        "        T.reads()",
        "        T.writes()",
        *indented(body, 8),
    ]
