"""Lines of TVMScript for products of bfloat16 numbers, two at a time, as one instruction adds them up.

A pair is 32 bits: the number of the even place is the low half. See `host.tensor_ir.bfloat16`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from host.lowering.decoding.lines import indented
from host.tensor_ir.bfloat16 import dot_function

# Lanes of vectors that the instruction takes.
LANES = (4, 8, 16)
_HALF = 16


def paired(low: Any, high: Any) -> Any:
    """Two floats, each rounded to bfloat16, as the 32 bits of a pair."""

    def bits(value: Any) -> Any:
        return tirx.Cast("uint32", tirx.reinterpret("uint16", tirx.Cast("bfloat16", value)))

    return bits(low) | (bits(high) << tirx.const(_HALF, "uint32"))


def pair_products(
    rows: int, parts: Sequence[tuple[int, int]], sums: str, pair: str, of_lanes: str, indent: int
) -> list[str]:
    """Text that adds the products of a pair of each row with the pairs of vectors to sums.

    Args:
        rows: of a tile; the text names one `i`.
        parts: first element and lanes of each vector.
        sums: buffer (rows, elements) float32.
        pair: two bfloat16 numbers of row `i` that lie side by side, as buffer and the place of the first.
        of_lanes: buffer of pairs, uint32, and the place before that of a lane.
        indent: of the text.
    """
    buffer, _, place = pair.partition("|")
    vector, _, before = of_lanes.partition("|")
    lines = [f"for i in T.unroll({rows}):"]
    for start, lanes in parts:
        # As floating-point numbers all are broadcast; LLVM loads integers into general registers first.
        one = f'T.reinterpret({buffer}.vload([{place}], "bfloat16x2"), dtype="float32")'
        each = f'T.reinterpret(T.broadcast({one}, {lanes}), dtype="uint32x{lanes}")'
        total = f'{sums}.vload([i, {start}], "float32x{lanes}")'
        given = f'{vector}.vload([{before}, {start}], "uint32x{lanes}")'
        made = f'T.call_pure_extern("float32x{lanes}", "{dot_function(lanes)}", {total}, {each}, {given})'
        lines.append(f"    {sums}[i, T.ramp({start}, 1, {lanes})] = {made}")
    return indented(lines, indent)
