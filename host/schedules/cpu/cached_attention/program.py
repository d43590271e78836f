"""The program of attention over a cache in which threads share the positions of a head of keys.

A block takes a part of the positions: it writes the new keys and values that lie there, and leaves, for every
row, the highest score of the part, the sum of the powers below it, and the sum of the values. A second loop
multiplies each part's sums by the power of the difference from the highest score of all, and adds them up, as
in Flash-Decoding (Dao et al. 2023). Parts that a short text leaves without positions weigh nothing.
"""

from __future__ import annotations

from tvm import s_tir

from host.lowering.decoding.blocked import has_blocks
from host.lowering.decoding.function import attention_body, script_functions
from host.lowering.decoding.lines import MEANS, TOPS, TOTALS, Split, indented, vectors
from host.lowering.decoding.shape import BLOCK, CacheShape
from host.schedules.cached_attention import buffers_of
from host.schedules.script import put_script


def put_split(schedule: s_tir.Schedule, shape: CacheShape, splits: int) -> None:
    """Puts the program into the place of the whole function.

    Args:
        schedule: of the function.
        shape: of the attention, with all that the function states.
        splits: parts of the positions, more than one.
    """
    rows, heads, size = shape.rows, shape.heads, shape.size
    body = attention_body(shape, Split("vp", splits))
    lines = [
        f'{MEANS} = T.sblock_alloc_buffer(({splits}, {rows}, {heads}, {size}), "float32")',
        f'{TOPS} = T.sblock_alloc_buffer(({rows}, {heads}, {splits}), "float32")',
        f'{TOTALS} = T.sblock_alloc_buffer(({rows}, {heads}, {splits}), "float32")',
        f"for n in T.parallel({shape.key_heads * splits}):",
        f'    with T.sblock("{BLOCK}"):',
        f"        vh = T.axis.spatial({shape.key_heads}, n // {splits})",
        f"        vp = T.axis.spatial({splits}, n % {splits})",
        "        T.reads()",
        "        T.writes()",
        *indented([*body.buffers, *body.lines], 8),
        *_merged(shape, splits),
    ]
    put_script(schedule, lines, **buffers_of(schedule, shape), **script_functions(shape))


def _merged(shape: CacheShape, splits: int) -> list[str]:
    """Text of the loop that adds up the parts of each row: by all threads where there are many rows."""
    rows, heads = shape.rows, shape.heads
    loop = "T.parallel" if has_blocks(shape) else "T.serial"
    row = "vt, vq"
    part = f"mean[i, d] = mean[i, d] + {MEANS}[s, {row}, d] * weights[s]"
    body = [
        f'weights = T.sblock_alloc_buffer(({splits},), "float32", scope="local")',
        'merged = T.sblock_alloc_buffer((2,), "float32", scope="local")',
        f'mean = T.sblock_alloc_buffer((1, {shape.size}), "float32", scope="local")',
        f"merged[0] = {TOPS}[{row}, 0]",
        f"for s in T.unroll({splits - 1}):",
        f"    merged[0] = T.max(merged[0], {TOPS}[{row}, s + 1])",
        f"for s in T.vectorized({splits}):",
        f"    weights[s] = power({TOPS}[{row}, s], merged[0])",
        "merged[1] = T.float32(0)",
        f"for s in T.unroll({splits}):",
        f"    merged[1] = merged[1] + {TOTALS}[{row}, s] * weights[s]",
        *vectors(1, shape.vectors, "mean[i, d] = T.float32(0)", 0),
        f"for s in T.unroll({splits}):",
        *vectors(1, shape.vectors, part, 4),
        *vectors(1, shape.vectors, f"output[{row}, d] = mean[i, d] / merged[1]", 0),
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
