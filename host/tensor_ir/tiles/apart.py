"""Takes quantised weights apart: numbers, scales, zero points and minima become tiles of bfloat16.

Each weight is computed in single precision, with its scale and its zero point or minimum, and rounded once.
Where it keeps 16 bits, a second number is what rounding took off, cut off behind its own bits.

A stored number n is at hand as a float without a conversion: where its first bit is the bit p of one of
2^(23 - p), they are those of 2^(23 - p) + n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from host.tensor_ir.tiles.lines import DEPTH, LANES, TILE_BYTES, Lines

# Kinds of asymmetry.
SYMMETRIC, ZEROS, MINIMA = 0, 1, 2
# Elements of one lane in a step, see `host.lowering.quantised.layout`.
_WIDTH = 4
# Where in a float the numbers of a lane are taken from, by their first bits: the bits by which the lane is
# moved to the left, and the first bit there. Several numbers need no move of their own.
_PLACES = {
    4: {
        0: (8, 8),
        4: (8, 12),
        8: (0, 8),
        12: (0, 12),
        16: (0, 16),
        20: (-12, 8),
        24: (-12, 12),
        28: (-12, 16),
    },
    8: {0: (8, 8), 8: (0, 8), 16: (-8, 8), 24: (-16, 8)},
}
# The same where every bit counts: the product of a scale and what the float is more than the number is exact.
_EXACT_PLACES = {
    bits: {first: (place - first, place) for first in range(0, 32, bits)}
    for bits, place in ((4, 16), (8, 15))
}
# Of the exponent of a float.
_BIAS = 127
# Half of the last bit that is kept, by which a float is rounded to bfloat16.
_HALF = 0x8000


@dataclass(frozen=True)
class Form:
    """How weights lie in memory, and what they become; see `host.tensor_ir.tiles.quantised.QuantisedPanels`.

    Attributes:
        bits: of an element.
        asymmetry: of blocks.
        multiplied: 1 where groups have multipliers, else 0.
        single: 1 where scales are float32, and 0 where they are float16.
        groups: of a row.
        group: elements of one, a multiple of 32.
        ratio: groups of a block.
        halves: numbers of bfloat16 that a weight becomes.
    """

    bits: int
    asymmetry: int
    multiplied: int
    single: int
    groups: int
    group: int
    ratio: int
    halves: int

    @property
    def vectors(self) -> int:
        """Vectors of 64 bytes of a tile."""
        return DEPTH // (2 * _WIDTH if self.bits == 4 else _WIDTH)

    @property
    def places(self) -> Mapping[int, tuple[int, int]]:
        """By the first bit of a number in its lane: how far that is moved, and where the number is then."""
        return (_EXACT_PLACES if self.halves == 2 else _PLACES)[self.bits]

    @property
    def panel_bytes(self) -> int:
        """Bytes of a panel's numbers."""
        return self.groups * self.group * LANES * self.bits // 8


class Scales(NamedTuple):
    """What a tile's numbers become weights by, a vector for its outputs.

    Attributes:
        scale: of the weights.
        offsets: what is added to the product of scale and float, by the place of a number in its float.
    """

    scale: str
    offsets: Mapping[int, str]


def take_apart(lines: Lines, form: Form, source: str, scales: Scales, to: str, vector: str) -> None:
    """Takes one vector of a tile apart.

    Args:
        lines: of the function, which has `%weight`, the numbers, and `%apart`, where tiles go.
        form: of the weights.
        source: place of the vector in bytes.
        scales: of its weights.
        to: place of the tile in bytes.
        vector: its number in the tile.
    """
    loaded = lines.value(f"load <16 x i32>, ptr {lines.place('%weight', source)}, align 1")
    firsts = (0, 4) if form.bits == 4 else (0,)
    for number, first in enumerate(firsts):
        for pair in range(_WIDTH // 2):
            weights = [_weighed(lines, form, loaded, 8 * (2 * pair + at) + first, scales) for at in (0, 1)]
            row = (number * _WIDTH // 2 + pair) * 64
            place = lines.sum((to, 1), (vector, len(firsts) * _WIDTH // 2 * 64))
            low, high = (_rounded(lines, weight) for weight in weights)
            _store(lines, _joined(lines, low, high), lines.sum((place, 1), row))
            if form.halves == 2:
                low, high = (
                    _left(lines, weight, kept) for weight, kept in zip(weights, (low, high), strict=True)
                )
                _store(lines, _joined(lines, low, high), lines.sum((place, 1), row + TILE_BYTES))


def scales_of(lines: Lines, form: Form, panel: str, tile: str) -> Scales:
    """The scales of a panel's weights in a tile of the depth; `panel` and `tile` are numbers."""
    per_group = form.group // DEPTH
    group, block = (
        tile if tiles == 1 else lines.value(f"udiv i64 {tile}, {tiles}")
        for tiles in (per_group, per_group * form.ratio)
    )
    blocks = form.groups // form.ratio

    def loaded(name: str, place: str, count: int, kind: str) -> str:
        """16 numbers as floats."""
        size = {"half": 2, "float": 4, "i8": 1}[kind]
        at = lines.sum((panel, count * LANES * size), (place, LANES * size))
        found = lines.value(f"load <16 x {kind}>, ptr {lines.place(f'%{name}', at)}, align {size}")
        if kind == "float":
            return found
        instruction = "sitofp" if kind == "i8" else "fpext"
        return lines.value(f"{instruction} <16 x {kind}> {found} to <16 x float>")

    scale = loaded("factors", block, blocks, "float" if form.single else "half")
    if form.multiplied:
        by = loaded("multipliers", group, form.groups, "i8")
        scale = lines.value(f"fmul <16 x float> {scale}, {by}")
    zeros = minimum = ""
    if form.asymmetry == ZEROS:
        zeros = loaded("zeros", block, blocks, "i8")
    if form.asymmetry == MINIMA:
        minimum = loaded("minima", block, blocks, "half")
        if form.multiplied:
            by = loaded("minimum_multipliers", group, form.groups, "i8")
            minimum = lines.value(f"fmul <16 x float> {minimum}, {by}")
    # What is stored is more than the number of whole bytes, and of half bytes of symmetric weights.
    more = {4: 8 if form.asymmetry == SYMMETRIC else 0, 8: 128}[form.bits]
    offsets = {}
    for place in {place for _, place in form.places.values()}:
        least = _all_of(-float((1 << 23 - place) + more))
        if zeros:
            least = lines.value(f"fsub <16 x float> {least}, {zeros}")
        offsets[place] = lines.value(f"fmul <16 x float> {scale}, {least}")
        if minimum:
            offsets[place] = lines.value(f"fadd <16 x float> {offsets[place]}, {minimum}")
    return Scales(scale, offsets)


def _weighed(lines: Lines, form: Form, loaded: str, first: int, scales: Scales) -> str:
    """The weights whose numbers begin at one bit of each lane."""
    by, place = form.places[first]
    moved = loaded
    if by:
        moved = lines.value(f"{'shl' if by > 0 else 'lshr'} <16 x i32> {loaded}, {_all_bits(abs(by))}")
    masked = lines.value(f"and <16 x i32> {moved}, {_all_bits((2**form.bits - 1) << place)}")
    held = lines.value(f"or <16 x i32> {masked}, {_all_bits((_BIAS + 23 - place) << 23)}")
    number = lines.value(f"bitcast <16 x i32> {held} to <16 x float>")
    return lines.value(
        f"call <16 x float> @llvm.fma.v16f32("
        f"<16 x float> {number}, <16 x float> {scales.scale}, <16 x float> {scales.offsets[place]})"
    )


def _rounded(lines: Lines, weights: str) -> str:
    """Bits whose upper halves are the weights rounded to bfloat16."""
    whole = lines.value(f"bitcast <16 x float> {weights} to <16 x i32>")
    return lines.value(f"add <16 x i32> {whole}, {_all_bits(_HALF)}")


def _left(lines: Lines, weights: str, rounded: str) -> str:
    """The bits of what rounding took off."""
    kept = lines.value(f"and <16 x i32> {rounded}, {_all_bits(0xFFFF0000 - 2**32)}")
    kept = lines.value(f"bitcast <16 x i32> {kept} to <16 x float>")
    left = lines.value(f"fsub <16 x float> {weights}, {kept}")
    return lines.value(f"bitcast <16 x float> {left} to <16 x i32>")


def _joined(lines: Lines, low: str, high: str) -> str:
    """The upper halves of two floats' bits in one lane."""
    below = lines.value(f"lshr <16 x i32> {low}, {_all_bits(16)}")
    above = lines.value(f"and <16 x i32> {high}, {_all_bits(0xFFFF0000 - 2**32)}")
    return lines.value(f"or <16 x i32> {below}, {above}")


def _store(lines: Lines, joined: str, place: str) -> None:
    lines.add(f"store <16 x i32> {joined}, ptr {lines.place('%apart', place)}, align 64")


def _all_of(number: float) -> str:
    return "<" + ", ".join([f"float {number:.1f}"] * LANES) + ">"


def _all_bits(number: int) -> str:
    return "<" + ", ".join([f"i32 {number}"] * LANES) + ">"
