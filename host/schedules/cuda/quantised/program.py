"""The program of a product of few rows with a quantised weight, as text of TVMScript.

A warp has `rows` rows of the weight. Each lane loads 16 bytes of each, those of all rows before it uses any,
and multiplies their numbers in registers by elements of all rows of activations; in the end lanes exchange
their sums.

A number becomes a float without a conversion, which GPUs do at an eighth of the rate of other instructions:
its bits are shifted to the head of the mantissa of 1.0. With f = 1 + number / 2^bits, the sum of the products
of a chunk is 2^bits (sum(f x) - sum(x)). The sum of the activations serves all rows, and is what zero points
and minima are multiplied with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.backend.cuda.op import cuda_func_call

from host.lowering.quantised.row_major import RowForm
from host.schedules.cuda import scripts
from host.schedules.script import put_script

# Bytes that a lane loads at once, in words of four.
CHUNK_BYTES, _WORDS = 16, 4
_HEAD = "static __device__ __forceinline__ void"
# Bits of a mantissa, and of 1.0.
_MANTISSA, _ONE = 23, 0x3F800000


@dataclass(frozen=True)
class RowTiles:
    """How a program divides its work.

    Attributes:
        rows: of the weight, of a warp.
        warps: of a block.
    """

    rows: int
    warps: int

    def registers(self, count: int, chunk: int) -> int:
        """Registers of a thread, estimated: words, activations of one, sums of a chunk and all, addresses.

        Args:
            count: rows of activations.
            chunk: elements of 16 bytes of the weight.
        """
        return self.rows * (_WORDS + 2 * count) + count * (chunk // _WORDS + 1) + 36


@dataclass(frozen=True)
class RowProduct:
    """The extents of a product.

    Attributes:
        count: rows of activations, T.
        columns: rows of the weight, N.
        depth: elements of a row, K.
        bits: of an element.
    """

    count: int
    columns: int
    depth: int
    bits: int

    @property
    def chunk(self) -> int:
        """Elements that a lane loads at once."""
        return CHUNK_BYTES * 8 // self.bits

    @property
    def turns(self) -> int:
        """Chunks of a lane."""
        return -(-self.depth // (self.chunk * scripts.WARP))


def put_into(
    schedule: s_tir.Schedule,
    product: RowProduct,
    form: RowForm,
    tiles: RowTiles,
    buffers: dict[str, tirx.Buffer],
) -> None:
    """Puts a program into the place of the whole function.

    Args:
        schedule: of the function.
        product: its extents.
        form: of its weight.
        tiles: of the program.
        buffers: of the function, by the names of `row_major`.
    """
    blocks = -(-product.columns // (tiles.rows * tiles.warps))
    lines = scripts.bound(blocks, tiles.warps, "rows")
    lines += [" " * 16 + line for line in _body(product, form, tiles)]
    given = {
        **buffers,
        **scripts.WARP_FUNCTIONS,
        "load_words": _load_words,
        "load_row": _loader(product.chunk // _WORDS),
    }
    put_script(schedule, lines, **given)


def _body(product: RowProduct, form: RowForm, tiles: RowTiles) -> list[str]:
    count, rows, chunk = product.count, tiles.rows, product.chunk
    each = chunk // _WORDS
    buffers = (
        ("words", rows * _WORDS, "uint32"),
        ("given", count * each, "float32"),
        ("sums", count, "float32"),
        ("parts", rows * count, "float32"),
        ("totals", rows * count, "float32"),
        ("factor", 2, "float32"),
    )
    first = f"((block * {tiles.warps} + warp) * {rows})"
    # Rows behind the last one are computed as that, and not stored.
    row = f"T.min({first} + r, {product.columns - 1})"
    place = f"((turn * {scripts.WARP} + lane) * {chunk})"
    turn = _turn(product, form, rows, row, place)
    if product.depth % (chunk * scripts.WARP):
        turn = [f"if {place} < {product.depth}:", *("    " + line for line in turn)]
    lines = [
        f'{name} = T.sblock_alloc_buffer(({size},), "{kind}", scope="local")' for name, size, kind in buffers
    ]
    lines += [
        f"for n in T.unroll({rows * count}):",
        "    totals[n] = T.float32(0)",
        f"for turn in range({product.turns}):",
        *("    " + line for line in turn),
        f"for n in T.unroll({rows * count}):",
        "    totals[n] = total(totals[n])",
        "if lane == 0:",
        f"    for r in T.unroll({rows}):",
        f"        if {first} + r < {product.columns}:",
        f"            for t in T.unroll({count}):",
        f"                output[t, {first} + r] = totals[r * {count} + t]",
    ]
    return lines


def _turn(product: RowProduct, form: RowForm, rows: int, row: str, place: str) -> list[str]:
    """Text of what a lane does with its chunks of all rows."""
    count, chunk, bits = product.count, product.chunk, product.bits
    each = chunk // _WORDS
    # A signed byte is 128 more, by its highest bit turned over; `below` is what f's number is more than the
    # stored one.
    below = 128 if bits == 8 else 0
    return [
        f"for r in T.unroll({rows}):",
        f"    T.evaluate(load_words(words.data, r * {_WORDS}, weight.data,"
        f" {row} * {product.depth * bits // 8} + (turn * {scripts.WARP} + lane) * {CHUNK_BYTES}))",
        f"for t in T.unroll({count}):",
        "    sums[t] = T.float32(0)",
        f"for n in T.unroll({rows * count}):",
        "    parts[n] = T.float32(0)",
        f"for w in T.unroll({_WORDS}):",
        f"    for t in T.unroll({count}):",
        f"        T.evaluate(load_row(given.data, t * {each}, data.data,"
        f" t * {product.depth} + {place} + w * {each}))",
        f"        for j in T.unroll({each}):",
        f"            sums[t] = sums[t] + given[t * {each} + j]",
        f"    for r in T.unroll({rows}):",
        *(
            line
            for j in range(each)
            for line in (
                f"        factor[0] = {_float_of(f'words[r * {_WORDS} + w]', j, bits)}",
                f"        for t in T.unroll({count}):",
                f"            parts[r * {count} + t] = parts[r * {count} + t]"
                f" + factor[0] * given[t * {each} + {j}]",
            )
        ),
        f"for r in T.unroll({rows}):",
        f"    factor[0] = {form.scale(row, place)}",
        f"    factor[1] = {form.shift(row, place)}",
        f"    for t in T.unroll({count}):",
        f"        totals[r * {count} + t] = totals[r * {count} + t] + sums[t] * factor[1] + factor[0]"
        f" * (parts[r * {count} + t] * T.float32({1 << bits}) - sums[t] * T.float32({(1 << bits) + below}))",
    ]


def _float_of(word: str, number: int, bits: int) -> str:
    """Text of 1 + element / 2^bits, of an element of a word; signed bytes are taken as 128 more."""
    shift = _MANTISSA - bits - number * bits
    moved = (
        f"T.shift_left({word}, T.uint32({shift}))"
        if shift >= 0
        else f"T.shift_right({word}, T.uint32({-shift}))"
    )
    mask = ((1 << bits) - 1) << (_MANTISSA - bits)
    head = _ONE | (1 << (_MANTISSA - 1) if bits == 8 else 0)
    return (
        f"T.reinterpret('float32', T.bitwise_xor(T.bitwise_and({moved}, T.uint32({mask})), T.uint32({head})))"
    )


def _load_words(words: Any, first: Any, weight: Any, place: Any) -> Any:
    """Loads 16 bytes of a weight into four registers."""
    name = "edgetlm_load_words"
    text = f"""{_HEAD} {name}(unsigned int* words, int first, const void* weight, int place) {{
  const uint4 four = *reinterpret_cast<const uint4*>(static_cast<const char*>(weight) + place);
  words[first] = four.x;
  words[first + 1] = four.y;
  words[first + 2] = four.z;
  words[first + 3] = four.w;
}}
"""
    return cuda_func_call(name, words, first, weight, place, source_code=text)


def _loader(count: int) -> Any:
    """A function that loads neighbouring activations, four at a time."""
    name = f"edgetlm_load_row_{count}"
    loads = "".join(
        f"""  const float4 part{n} = *reinterpret_cast<const float4*>(data + place + {4 * n});
  given[first + {4 * n}] = part{n}.x;
  given[first + {4 * n + 1}] = part{n}.y;
  given[first + {4 * n + 2}] = part{n}.z;
  given[first + {4 * n + 3}] = part{n}.w;
"""
        for n in range(count // 4)
    )
    text = f"{_HEAD} {name}(float* given, int first, const float* data, int place) {{\n{loads}}}\n"

    def load(given: Any, first: Any, data: Any, place: Any) -> Any:
        return cuda_func_call(name, given, first, data, place, source_code=text)

    return load
