"""Products with quantised weights: weights become bfloat16 a few panels at a time, for all rows.

Rows of activations are numbers of bfloat16 in tiles, and so are weights once they are taken apart: each by
its scale, with its zero point or minimum, rounded once. A product of two tiles adds 16 rows by 32 elements
by 16 outputs in single precision (TDPBF16PS, Intel SDM).

A stored number n is at hand as a float without a conversion: its bits behind those of 128 (256 for whole
bytes) are those of 128 + n.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from host.tensor_ir.tiles.lines import CONFIGURED, DEPTH, LANES, LINE_BYTES, TILE_BYTES, Lines, defined
from host.tensor_ir.tiles.registers import RELEASED
from host.tensor_ir.tiles.registers import ROWS as TILE_ROWS

ROWS_PREFIX, PANELS_PREFIX = "edgetlm_tile_rows_", "edgetlm_quantised_tiles_"
# Elements of one lane in a step, see `host.lowering.quantised.layout`.
_WIDTH = 4
# Numbers of weights, by their bits: the float whose last bits they become, its bits, and the first of them.
_BASES = {4: (128, 0x43000000, 16), 8: (256, 0x43800000, 15)}
# Half of the last bit that is kept, by which a float is rounded to bfloat16.
_HALF = 0x8000
# Kinds of asymmetry.
SYMMETRIC, ZEROS, MINIMA = 0, 1, 2


@dataclass(frozen=True)
class TiledRows:
    """16 rows of floats as tiles of bfloat16 numbers: (depth / 32, 16, 32).

    Attributes:
        depth: elements of a row, a multiple of 32.
    """

    depth: int

    @property
    def name(self) -> str:
        """The function's name; it takes the addresses of the first row and of the tiles."""
        return f"{ROWS_PREFIX}{self.depth}"

    def text(self) -> str:
        """The function in LLVM's language."""
        lines = Lines()
        with lines.loop("tiles", self.depth // DEPTH) as tile:
            for row in range(TILE_ROWS):
                address = lines.place("%rows", lines.sum((tile, DEPTH * 4), row * self.depth * 4))
                loaded = lines.value(f"load <32 x float>, ptr {address}, align 4")
                narrow = lines.value(f"fptrunc <32 x float> {loaded} to <32 x bfloat>")
                address = lines.place("%made", lines.sum((tile, TILE_BYTES), row * DEPTH * 2))
                lines.add(f"store <32 x bfloat> {narrow}, ptr {address}, align 64")
        return defined(self.name, "ptr noalias %rows, ptr noalias %made", lines)


@dataclass(frozen=True)
class QuantisedPanels:
    """The products of a few panels with all rows.

    Attributes:
        bits: of an element of the weight, 4 or 8.
        asymmetry: of blocks: `SYMMETRIC`, `ZEROS` or `MINIMA`.
        multiplied: 1 where groups have multipliers, else 0.
        single: 1 where scales are float32, and 0 where they are float16.
        rows: of activations, a multiple of 16 times `tall`.
        groups: of a row.
        group: elements of one, a multiple of 32.
        ratio: groups of a block, which has a scale.
        columns: of the result.
        wide: panels that are taken apart together; two of them are multiplied together where they are even.
        tall: tiles of rows that are multiplied together, at most 2.
        together: groups that are taken apart together, a divisor of `groups`.
    """

    bits: int
    asymmetry: int
    multiplied: int
    single: int
    rows: int
    groups: int
    group: int
    ratio: int
    columns: int
    wide: int
    tall: int
    together: int

    @property
    def name(self) -> str:
        """The function's name; see `arguments`."""
        return PANELS_PREFIX + "_".join(map(str, astuple(self)))

    @property
    def arguments(self) -> tuple[str, ...]:
        """What it takes the addresses of.

        `tiles` are of `TiledRows`, one after the other; the first panel of the weight, and what it has
        beside, are as in `host.lowering.quantised.layout`; `result` is (rows, columns) float32, from the
        panels' first column on.
        """
        multipliers = ("multipliers",) if self.multiplied else ()
        minima = ("minima", *(("minimum_multipliers",) if self.multiplied else ()))
        further = {SYMMETRIC: (), ZEROS: ("zeros",), MINIMA: minima}[self.asymmetry]
        return ("tiles", "weight", "factors", *multipliers, *further, "result")

    @property
    def pair(self) -> int:
        """Panels that are multiplied together."""
        return 2 if self.wide % 2 == 0 else 1

    @property
    def vectors(self) -> int:
        """Vectors of 64 bytes of a group of a panel."""
        return self.group // (8 if self.bits == 4 else _WIDTH)

    def text(self) -> str:
        """The function in LLVM's language."""
        lines = Lines()
        lines.add(f"%apart = alloca [{self.wide * self.together * self.group * LANES * 2} x i8], align 64")
        lines.add(f"call i32 @{CONFIGURED.name}()")
        for start in range(0, self.groups, self.together):
            _take_apart(lines, self, start)
            _multiply(lines, self, start)
        lines.add(f"call i32 @{RELEASED.name}()")
        return defined(self.name, ", ".join(f"ptr noalias %{name}" for name in self.arguments), lines)


def _take_apart(lines: Lines, one: QuantisedPanels, start: int) -> None:
    """The loop over all panels, and in it that over the groups from `start` on."""
    size = one.group * LANES * 2
    with (
        lines.loop(f"panels{start}", one.wide) as panel,
        lines.loop(f"groups{start}", one.together) as index,
    ):
        group = lines.sum((index, 1), start)
        scale, offset = _line(lines, one, panel, group)
        source = lines.sum((panel, one.groups * one.vectors * 64), (group, one.vectors * 64))
        to = lines.sum((panel, one.together * size), (index, size))
        halves = (0, 4) if one.bits == 4 else (0,)
        for vector in range(one.vectors):
            address = lines.place("%weight", lines.sum((source, 1), vector * 64))
            loaded = lines.value(f"load <16 x i32>, ptr {address}, align 1")
            for half, first in enumerate(halves):
                for pair in range(_WIDTH // 2):
                    low, high = (
                        _weighed(lines, one, loaded, 8 * (2 * pair + place) + first, scale, offset)
                        for place in (0, 1)
                    )
                    row = (vector * len(halves) + half) * _WIDTH // 2 + pair
                    address = lines.place("%apart", lines.sum((to, 1), row * 64))
                    lines.add(f"store <16 x i32> {_joined(lines, low, high)}, ptr {address}, align 64")


def _line(lines: Lines, one: QuantisedPanels, panel: str, group: str) -> tuple[str, str]:
    """The scale of each output's weights in a group, and what is added to 128 (or 256) + n times it."""
    block = group if one.ratio == 1 else lines.value(f"udiv i64 {group}, {one.ratio}")
    blocks = one.groups // one.ratio

    def loaded(name: str, place: str, count: int, kind: str) -> str:
        """16 numbers as floats."""
        size = {"half": 2, "float": 4, "i8": 1}[kind]
        at = lines.sum((panel, count * LANES * size), (place, LANES * size))
        found = lines.value(f"load <16 x {kind}>, ptr {lines.place(f'%{name}', at)}, align {size}")
        if kind == "float":
            return found
        instruction = "sitofp" if kind == "i8" else "fpext"
        return lines.value(f"{instruction} <16 x {kind}> {found} to <16 x float>")

    scale = loaded("factors", block, blocks, "float" if one.single else "half")
    if one.multiplied:
        by = loaded("multipliers", group, one.groups, "i8")
        scale = lines.value(f"fmul <16 x float> {scale}, {by}")
    # What is stored is more than the number of whole bytes, and of half bytes of symmetric weights.
    more = {4: 8 if one.asymmetry == SYMMETRIC else 0, 8: 128}[one.bits]
    least = float(_BASES[one.bits][0] + more)
    if one.asymmetry == ZEROS:
        zeros = loaded("zeros", block, blocks, "i8")
        zeros = lines.value(f"fadd <16 x float> {zeros}, {_all_of(least)}")
        less = lines.value(f"fmul <16 x float> {zeros}, {scale}")
        return scale, lines.value(f"fneg <16 x float> {less}")
    less = lines.value(f"fmul <16 x float> {scale}, {_all_of(-least)}")
    if one.asymmetry == SYMMETRIC:
        return scale, less
    minimum = loaded("minima", block, blocks, "half")
    if one.multiplied:
        by = loaded("minimum_multipliers", group, one.groups, "i8")
        minimum = lines.value(f"fmul <16 x float> {minimum}, {by}")
    return scale, lines.value(f"fadd <16 x float> {less}, {minimum}")


def _weighed(lines: Lines, one: QuantisedPanels, loaded: str, first: int, scale: str, offset: str) -> str:
    """The weights whose numbers begin at one bit of each lane, with half of a bfloat16's last bit added."""
    _, bits, place = _BASES[one.bits]
    moved, by = loaded, place - first
    if by:
        moved = lines.value(f"{'shl' if by > 0 else 'lshr'} <16 x i32> {loaded}, {_all_bits(abs(by))}")
    masked = lines.value(f"and <16 x i32> {moved}, {_all_bits((2**one.bits - 1) << place)}")
    held = lines.value(f"or <16 x i32> {masked}, {_all_bits(bits)}")
    number = lines.value(f"bitcast <16 x i32> {held} to <16 x float>")
    made = lines.value(
        f"call <16 x float> @llvm.fma.v16f32("
        f"<16 x float> {number}, <16 x float> {scale}, <16 x float> {offset})"
    )
    whole = lines.value(f"bitcast <16 x float> {made} to <16 x i32>")
    return lines.value(f"add <16 x i32> {whole}, {_all_bits(_HALF)}")


def _joined(lines: Lines, low: str, high: str) -> str:
    """The upper halves of two floats' bits in one lane."""
    below = lines.value(f"lshr <16 x i32> {low}, {_all_bits(16)}")
    above = lines.value(f"and <16 x i32> {high}, {_all_bits(0xFFFF0000 - 2**32)}")
    return lines.value(f"or <16 x i32> {below}, {above}")


def _multiply(lines: Lines, one: QuantisedPanels, start: int) -> None:
    """The loops over tiles of rows, panels, and the depth of the groups that were taken apart.

    Rows stay in the first cache level from panel to panel.
    """
    every, depth = one.groups * one.group // DEPTH, one.together * one.group // DEPTH
    stride = one.columns * 4
    with (
        lines.loop(f"rows{start}", one.rows // (TILE_ROWS * one.tall)) as row,
        lines.loop(f"pairs{start}", one.wide // one.pair) as pair,
    ):
        places = [(down, across) for down in range(one.tall) for across in range(one.pair)]
        first = lines.sum((row, TILE_ROWS * one.tall * stride), (pair, one.pair * LANES * 4))
        results = [
            lines.place("%result", lines.sum((first, 1), down * TILE_ROWS * stride + across * LANES * 4))
            for down, across in places
        ]
        for tile, address in enumerate(results):
            if start:
                lines.load(tile, address, stride)
            else:
                lines.zero(tile)
        with lines.loop(f"depth{start}", depth) as step:
            for down in range(one.tall):
                at = lines.sum((row, one.tall * every * TILE_BYTES), (step, TILE_BYTES))
                skipped = (down * every + start * one.group // DEPTH) * TILE_BYTES
                lines.load(4 + down, lines.place("%tiles", lines.sum((at, 1), skipped)), DEPTH * 2)
            for across in range(one.pair):
                at = lines.sum((pair, one.pair * depth * TILE_BYTES), (step, TILE_BYTES))
                at = lines.sum((at, 1), across * depth * TILE_BYTES)
                lines.load(6 + across, lines.place("%apart", at), LANES * 4)
            for tile, (down, across) in enumerate(places):
                lines.multiply(tile, 4 + down, 6 + across)
            _fetch(lines, one, start, row, pair, step)
        for tile, address in enumerate(results):
            lines.store(tile, address, stride)


def _fetch(lines: Lines, one: QuantisedPanels, start: int, row: str, pair: str, step: str) -> None:
    """Fetches what the next panels have in place of those that are multiplied, a few lines a turn."""
    size = one.group * LANES * one.bits // 8
    each = DEPTH * LANES * one.bits // 8 // LINE_BYTES * one.pair
    turns = one.rows // (TILE_ROWS * one.tall)
    count = -(-each // turns)
    at = lines.sum((pair, one.pair * one.groups * size), (step, DEPTH * LANES * one.bits // 8))
    at = lines.sum((at, 1), one.wide * one.groups * size + start * size)
    for number in range(count):
        line = lines.sum((row, count), number)
        if count * turns > each:
            # The last tiles have no part of their own.
            line = lines.value(f"call i64 @llvm.umin.i64(i64 {line}, i64 {each - 1})")
        panel = lines.value(f"udiv i64 {line}, {each // one.pair}")
        beside = lines.value(f"urem i64 {line}, {each // one.pair}")
        place = lines.sum((at, 1), (panel, one.groups * size), (beside, LINE_BYTES))
        lines.fetch(lines.place("%weight", place))


def _all_of(number: float) -> str:
    return "<" + ", ".join([f"float {number:.1f}"] * LANES) + ">"


def _all_bits(number: int) -> str:
    return "<" + ", ".join([f"i32 {number}"] * LANES) + ">"
