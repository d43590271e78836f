"""Products with quantised weights: weights become bfloat16 a block at a time, for all rows.

Rows of activations are numbers of bfloat16 in tiles, and so are weights once they are taken apart
(`host.tensor_ir.tiles.apart`). A product of two tiles adds 16 rows by 32 elements by 16 outputs in single
precision (TDPBF16PS, Intel SDM).

A block is the depth of two panels, or a part of it. While it is multiplied with all rows, vector units take
the next one apart: the unit that multiplies tiles is one of its own, and a core
starts later instructions before earlier ones have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from host.tensor_ir.tiles.apart import MINIMA, SYMMETRIC, ZEROS, Form, Scales, scales_of, take_apart
from host.tensor_ir.tiles.lines import CONFIGURED, DEPTH, LANES, LINE_BYTES, TILE_BYTES, Lines, defined
from host.tensor_ir.tiles.registers import RELEASED
from host.tensor_ir.tiles.registers import ROWS as TILE_ROWS

ROWS_PREFIX, PANELS_PREFIX = "edgetlm_tile_rows_", "edgetlm_quantised_tiles_"
# The first registers of rows and of weights; those before have the sums.
_ROWS_FROM, _WEIGHTS_FROM = 4, 6
# Halves of operands that are multiplied where both keep 16 bits; the product of both low halves is below
# the last bit that counts. Each pair has one half of the pair before it.
_HIGH, _LOW = 0, 1
_EXACT = ((_LOW, _HIGH), (_HIGH, _HIGH), (_HIGH, _LOW))


@dataclass(frozen=True)
class TiledRows:
    """16 rows of floats as tiles of bfloat16 numbers: (depth / 32, halves, 16, 32).

    Attributes:
        depth: elements of a row, a multiple of 32.
        halves: 1, or 2 where what rounding took off follows as a second number.
    """

    depth: int
    halves: int

    @property
    def name(self) -> str:
        """The function's name; it takes the addresses of the first row and of the tiles."""
        return f"{ROWS_PREFIX}{self.depth}_{self.halves}"

    def text(self) -> str:
        """The function in LLVM's language."""
        lines = Lines()
        with lines.loop("tiles", self.depth // DEPTH) as tile:
            for row in range(TILE_ROWS):
                address = lines.place("%rows", lines.sum((tile, DEPTH * 4), row * self.depth * 4))
                left = lines.value(f"load <32 x float>, ptr {address}, align 4")
                for half in range(self.halves):
                    narrow = lines.value(f"fptrunc <32 x float> {left} to <32 x bfloat>")
                    place = (half * TILE_ROWS + row) * DEPTH * 2
                    address = lines.place("%made", lines.sum((tile, self.halves * TILE_BYTES), place))
                    lines.add(f"store <32 x bfloat> {narrow}, ptr {address}, align 64")
                    if half + 1 < self.halves:
                        whole = lines.value(f"fpext <32 x bfloat> {narrow} to <32 x float>")
                        left = lines.value(f"fsub <32 x float> {left}, {whole}")
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
        wide: panels, of which two are multiplied together where they are even.
        tall: tiles of rows that are multiplied together, at most 2.
        together: groups that are taken apart together, a divisor of `groups`.
        halves: 1, or 2 where both operands keep 16 bits, each as two numbers of bfloat16.
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
    halves: int

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
    def blocks(self) -> int:
        """Blocks of panels that follow one another."""
        return self.wide // self.pair

    def panel(self, lines: Lines, block: str, across: str) -> str:
        """The number of a panel of a block, from the first one that the function gets."""
        return lines.sum((block, self.pair), (across, 1))

    @property
    def parts(self) -> int:
        """Parts of the depth that follow one another."""
        return self.groups // self.together

    @property
    def steps(self) -> int:
        """Tiles of the depth of a part."""
        return self.together * self.group // DEPTH

    @property
    def turns(self) -> int:
        """How often rows are multiplied with a block."""
        return self.rows // (TILE_ROWS * self.tall)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block that is taken apart."""
        return self.pair * self.steps * self.halves * TILE_BYTES

    @property
    def form(self) -> Form:
        """How weights lie and become."""
        return Form(
            self.bits,
            self.asymmetry,
            self.multiplied,
            self.single,
            self.groups,
            self.group,
            self.ratio,
            self.halves,
        )

    def text(self) -> str:
        """The function in LLVM's language."""
        lines, form = Lines(), self.form
        lines.add(f"%apart = alloca [{2 * self.block_bytes} x i8], align 64")
        if self.parts > 1:
            lines.add(f"%sums = alloca [{self.rows * self.pair * LANES * 4} x i8], align 64")
        lines.add(f"call i32 @{CONFIGURED.name}()")
        self.prepare(lines)
        with (
            lines.loop("first_steps", self.steps) as step,
            lines.loop("first_vectors", self.pair * form.vectors) as vector,
        ):
            to = lines.sum((step, self.pair * self.halves * TILE_BYTES))
            _take_apart(lines, self, "0", step, [vector], to)
        with lines.loop("blocks", self.blocks) as block:
            for part in range(self.parts):
                _multiply(lines, self, block, part)
        self.finish(lines)
        lines.add(f"call i32 @{RELEASED.name}()")
        return defined(self.name, ", ".join(f"ptr noalias %{name}" for name in self.arguments), lines)

    def prepare(self, lines: Lines) -> None:
        """What comes before all blocks."""

    def beside(self, lines: Lines, block: str, turn: str, number: str) -> None:
        """What vector units do in a step of a block's last part, beside taking weights apart.

        Args:
            lines: of the function.
            block: number of the block.
            turn: which rows are multiplied.
            number: of the step, from 0 in every turn.
        """

    def made(self, lines: Lines, block: str, turn: str) -> None:
        """Stores the sums of a turn, which are whole, as the result."""
        stride = self.columns * 4
        first = lines.sum((turn, TILE_ROWS * self.tall * stride), (block, self.pair * LANES * 4))
        for register, (down, across) in enumerate(_places(self)):
            place = lines.sum((first, 1), down * TILE_ROWS * stride + across * LANES * 4)
            lines.store(register, lines.place("%result", place), stride)

    def finish(self, lines: Lines) -> None:
        """What comes behind all blocks."""


def _multiply(lines: Lines, one: QuantisedPanels, block: str, part: int) -> None:
    """The products of a part of the depth of a block with all rows, while the next one is taken apart."""
    size = one.pair * one.halves * TILE_BYTES
    # Blocks lie in two places in turn.
    second = lines.value(f"and i64 {lines.sum((block, one.parts), part)}, 1")
    here = lines.sum((second, one.block_bytes))
    there = lines.value(f"sub i64 {one.block_bytes}, {here}")
    later, following = lines.sum((block, 1), (part + 1) // one.parts), (part + 1) % one.parts
    # Behind the last block, that is taken apart once more.
    last = one.blocks - 1
    later = lines.value(f"call i64 @llvm.umin.i64(i64 {later}, i64 {last})")
    with lines.loop(f"rows{part}", one.turns) as turn:
        _begin(lines, one, part, turn)
        with lines.loop(f"depth{part}", one.steps) as number:
            step = _in_turns(lines, one, turn, number)
            _products(lines, one, part, turn, step, lines.sum((step, size), (here, 1)))
            vectors, apart = _share(lines, one, turn)
            tile = lines.sum((step, 1), following * one.steps)
            _take_apart(lines, one, later, tile, vectors, lines.sum((step, size), (there, 1)), apart)
            tile = lines.sum((step, 1), (part + 2) % one.parts * one.steps)
            _fetch(lines, one, lines.sum((block, 1), (part + 2) // one.parts), tile, vectors)
            if part + 1 == one.parts:
                one.beside(lines, block, turn, number)
        _end(lines, one, part, turn, block)


def _in_turns(lines: Lines, one: QuantisedPanels, turn: str, number: str) -> str:
    """The step that comes in a turn: every second turn goes back, so that it begins with what was used last.

    Of blocks that the first cache level does not hold, it has a part then.
    """
    back = lines.value(f"and i64 {turn}, 1")
    further = lines.value(f"sub i64 {one.steps - 1}, {lines.sum((number, 2))}")
    return lines.sum((number, 1), (lines.value(f"mul i64 {back}, {further}"), 1))


def _places(one: QuantisedPanels) -> list[tuple[int, int]]:
    """Tile of rows and panel of each register of sums."""
    return [(down, across) for down in range(one.tall) for across in range(one.pair)]


def _begin(lines: Lines, one: QuantisedPanels, part: int, turn: str) -> None:
    """Sums of the parts of the depth before this one."""
    for register, address in enumerate(_kept(lines, one, turn) if part else []):
        lines.load(register, address, LANES * 4)
    for register in range(0 if part else one.tall * one.pair):
        lines.zero(register)


def _end(lines: Lines, one: QuantisedPanels, part: int, turn: str, block: str) -> None:
    """Stores sums for the next part, or as the result."""
    if part + 1 < one.parts:
        for register, address in enumerate(_kept(lines, one, turn)):
            lines.store(register, address, LANES * 4)
        return
    one.made(lines, block, turn)


def _kept(lines: Lines, one: QuantisedPanels, turn: str) -> list[str]:
    """Where the sums of a turn wait for the next part of the depth."""
    first = lines.sum((turn, one.tall * one.pair * TILE_BYTES))
    return [
        lines.place("%sums", lines.sum((first, 1), (down * one.pair + across) * TILE_BYTES))
        for down, across in _places(one)
    ]


def _products(lines: Lines, one: QuantisedPanels, part: int, turn: str, step: str, here: str) -> None:
    """The products of one tile of the depth, whose weights lie `here`."""
    row_bytes = one.parts * one.steps * one.halves * TILE_BYTES
    rows = lines.sum((turn, one.tall * row_bytes), (step, one.halves * TILE_BYTES))
    rows = lines.sum((rows, 1), part * one.steps * one.halves * TILE_BYTES)
    held: tuple[int, int] | None = None
    for of_rows, of_weights in _EXACT if one.halves == 2 else ((_HIGH, _HIGH),):
        if held is None or held[0] != of_rows:
            for down in range(one.tall):
                place = lines.sum((rows, 1), down * row_bytes + of_rows * TILE_BYTES)
                lines.load(_ROWS_FROM + down, lines.place("%tiles", place), DEPTH * 2)
        if held is None or held[1] != of_weights:
            for across in range(one.pair):
                place = lines.sum((here, 1), (across * one.halves + of_weights) * TILE_BYTES)
                lines.load(_WEIGHTS_FROM + across, lines.place("%apart", place), LANES * 4)
        held = (of_rows, of_weights)
        for register, (down, across) in enumerate(_places(one)):
            lines.multiply(register, _ROWS_FROM + down, _WEIGHTS_FROM + across)


def _share(lines: Lines, one: QuantisedPanels, turn: str) -> tuple[list[str], bool]:
    """The vectors that a turn takes apart of a tile of the depth; whether they are of different panels."""
    every = one.pair * one.form.vectors
    count = -(-every // one.turns)
    vectors = [lines.sum((turn, count), number) for number in range(count)]
    uneven = count * one.turns > every
    if uneven:
        # The last turns have none of their own.
        vectors = [
            lines.value(f"call i64 @llvm.umin.i64(i64 {vector}, i64 {every - 1})") for vector in vectors
        ]
    return vectors, uneven or one.form.vectors % count != 0


def _take_apart(
    lines: Lines,
    one: QuantisedPanels,
    block: str,
    tile: str,
    vectors: Sequence[str],
    to: str,
    apart: bool = False,
) -> None:
    """Takes vectors of a tile of the depth of a block apart, which go to a place of `%apart`.

    Args:
        lines: of the function.
        one: the function.
        block: number of the block.
        tile: number of the tile in the depth.
        vectors: numbers of the vectors in both panels.
        to: bytes from the first place to that of the tile.
        apart: whether vectors are of different panels.
    """
    form = one.form
    scales, place, source = Scales("", {}), "", ""
    for number, vector in enumerate(vectors):
        if number == 0 or apart:
            across = lines.value(f"udiv i64 {vector}, {form.vectors}")
            panel = one.panel(lines, block, across)
            scales = scales_of(lines, form, panel, tile)
            source = lines.sum((panel, form.panel_bytes), (tile, form.vectors * LINE_BYTES))
            place = lines.sum((to, 1), (across, one.halves * TILE_BYTES))
        within = lines.value(f"urem i64 {vector}, {form.vectors}")
        take_apart(lines, form, lines.sum((source, 1), (within, LINE_BYTES)), scales, place, within)


def _fetch(lines: Lines, one: QuantisedPanels, block: str, tile: str, vectors: Sequence[str]) -> None:
    """Fetches the vectors that a later block has in place of those that are taken apart."""
    form = one.form
    for vector in vectors:
        across = lines.value(f"udiv i64 {vector}, {form.vectors}")
        within = lines.value(f"urem i64 {vector}, {form.vectors}")
        panel = one.panel(lines, block, across)
        place = lines.sum((panel, form.panel_bytes), (tile, form.vectors * LINE_BYTES), (within, LINE_BYTES))
        lines.fetch(lines.place("%weight", place))
