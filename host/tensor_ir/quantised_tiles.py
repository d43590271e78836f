"""Products with quantised weights in the tiles of AMX, as functions in LLVM's own language.

Rows of activations are numbers of bfloat16, and so are a panel's weights once a few of its groups are taken
apart: each weight by its scale, with its zero point or minimum, rounded once. A product of two tiles adds 16
rows by 32 elements by 16 outputs in single precision (TDPBF16PS, Intel SDM). Each of the few panels that are
taken apart together serves all rows.

A stored number n is at hand as a float without a conversion: its bits behind those of 128 (256 for whole
bytes) are those of 128 + n.

TVM can name neither a tile nor its configuration, so that a program calls a function by a name that says all
about it, and `with_quantised_tiles` imports its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Any

import tvm
from tvm import tirx

from host.tensor_ir.matrix_tiles import REGISTERS, RELEASED, configured
from host.tensor_ir.matrix_tiles import ROWS as TILE_ROWS
from host.tensor_ir.structural import mapped

_ROWS_PREFIX, _PANELS_PREFIX = "edgetlm_tile_rows_", "edgetlm_quantised_tiles_"
# Outputs of a panel; elements of a row of a tile, and its bytes.
LANES, TILE_DEPTH, _TILE_BYTES = 16, 32, 1024
# Elements of one lane in a step, see `host.lowering.quantised.layout`.
_WIDTH = 4
# Numbers of weights, by their bits: the bits of the float whose last bits they become, and their first one.
_BASES = {4: (128, 0x43000000, 16), 8: (256, 0x43800000, 15)}
# Half of the last bit that is kept, by which a float is rounded to bfloat16.
_HALF = 0x8000
# All registers are whole: those of up to four sums, of two tiles of rows, and of two panels.
_CONFIGURED = configured([(TILE_ROWS, 64)] * REGISTERS)
_DECLARED = """
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8, i8, i8)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
"""
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
        return f"{_ROWS_PREFIX}{self.depth}"

    def text(self) -> str:
        """The function in LLVM's language."""
        lines = _Lines()
        lines.add("%tile = phi i64 [ 0, %entry ], [ %next, %tiles ]")
        first = lines.value(f"mul i64 %tile, {TILE_DEPTH * 4}")
        to = lines.value(f"mul i64 %tile, {_TILE_BYTES}")
        for row in range(TILE_ROWS):
            place = lines.value(f"add i64 {first}, {row * self.depth * 4}")
            address = lines.value(f"getelementptr i8, ptr %rows, i64 {place}")
            loaded = lines.value(f"load <32 x float>, ptr {address}, align 4")
            narrow = lines.value(f"fptrunc <32 x float> {loaded} to <32 x bfloat>")
            place = lines.value(f"add i64 {to}, {row * 64}")
            address = lines.value(f"getelementptr i8, ptr %made, i64 {place}")
            lines.add(f"store <32 x bfloat> {narrow}, ptr {address}, align 64")
        lines.add("%next = add i64 %tile, 1")
        lines.add(f"%more = icmp ult i64 %next, {self.depth // TILE_DEPTH}")
        lines.add("br i1 %more, label %tiles, label %end")
        return "\n".join(
            [
                f"define i32 @{self.name}(ptr noalias %rows, ptr noalias %made) noinline {{",
                "entry:",
                "  br label %tiles",
                "tiles:",
                *lines.lines,
                "end:",
                "  ret i32 0",
                "}",
            ]
        )


@dataclass(frozen=True)
class QuantisedPanels:
    """The products of a few panels with all rows.

    Attributes:
        bits: of an element of the weight, 4 or 8.
        asymmetry: of blocks: `SYMMETRIC`, `ZEROS` or `MINIMA`.
        multiplied: whether groups have multipliers.
        single: whether scales are float32, else float16.
        rows: of activations, a multiple of 16 times `tall`.
        groups: of a row.
        group: elements of one, a multiple of 32.
        ratio: groups of a block, which has a scale.
        columns: of the result.
        wide: panels, at most 2.
        tall: tiles of rows that are multiplied together, at most 2.
        together: groups that are taken apart together, a divisor of `groups`.
    """

    bits: int
    asymmetry: int
    multiplied: bool
    single: bool
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
        return _PANELS_PREFIX + "_".join(str(int(value)) for value in astuple(self))

    @property
    def arguments(self) -> tuple[str, ...]:
        """What it takes the addresses of.

        `tiles` are of `TiledRows`, one after the other; the first panel of the weight, and what it has
        beside, are as in `host.lowering.quantised.layout`; `result` is (rows, columns) float32, from the
        panels' first column on.
        """
        multipliers = ("multipliers",) if self.multiplied else ()
        zeros = ("zeros",) if self.asymmetry == ZEROS else ()
        minima = ("minima", *(("minimum_multipliers",) if self.multiplied else ()))
        return (
            "tiles",
            "weight",
            "factors",
            *multipliers,
            *zeros,
            *(minima if self.asymmetry == MINIMA else ()),
            "result",
        )

    @property
    def vectors(self) -> int:
        """Vectors of 64 bytes of a group of a panel."""
        return self.group // (8 if self.bits == 4 else _WIDTH)

    def text(self) -> str:
        """The function in LLVM's language."""
        arguments = ", ".join(f"ptr noalias %{name}" for name in self.arguments)
        size = self.wide * self.together * self.group * LANES * 2
        lines = _Lines()
        lines.label("entry")
        lines.add(f"%apart = alloca [{size} x i8], align 64")
        lines.add(f"call i32 @{_CONFIGURED.name}()")
        for number, start in enumerate(range(0, self.groups, self.together)):
            _take_apart(lines, self, number, start)
            _multiply(lines, self, number, start)
        lines.add(f"call i32 @{RELEASED.name}()")
        lines.add("ret i32 0")
        head = f"define i32 @{self.name}({arguments}) noinline {{"
        return "\n".join([head, *lines.lines, "}"])


def _take_apart(lines: _Lines, one: QuantisedPanels, number: int, start: int) -> None:
    """The loop over the groups from `start` on, of each panel."""
    for panel in range(one.wide):
        loop = lines.loop(f"apart{number}_{panel}", one.together)
        index = next(loop)
        group = lines.value(f"add i64 {index}, {start}")
        scale, offset = _line(lines, one, panel, group)
        source = lines.value(f"add i64 {group}, {panel * one.groups}")
        source = lines.value(f"mul i64 {source}, {one.vectors * 64}")
        to = lines.value(f"add i64 {index}, {panel * one.together}")
        to = lines.value(f"mul i64 {to}, {one.group * LANES * 2}")
        for vector in range(one.vectors):
            place = lines.value(f"add i64 {source}, {vector * 64}")
            address = lines.value(f"getelementptr i8, ptr %weight, i64 {place}")
            loaded = lines.value(f"load <16 x i32>, ptr {address}, align 1")
            halves = (0, 4) if one.bits == 4 else (0,)
            for half, first in enumerate(halves):
                step = vector * len(halves) + half
                for pair in range(_WIDTH // 2):
                    both = [
                        _weighed(lines, one, loaded, 8 * (2 * pair + place) + first, scale, offset)
                        for place in (0, 1)
                    ]
                    joined = _joined(lines, *both)
                    at = lines.value(f"add i64 {to}, {(2 * step + pair) * 64}")
                    address = lines.value(f"getelementptr i8, ptr %apart, i64 {at}")
                    lines.add(f"store <16 x i32> {joined}, ptr {address}, align 64")
        next(loop, None)


def _line(lines: _Lines, one: QuantisedPanels, panel: int, group: str) -> tuple[str, str]:
    """The scale of each output's weights in a group, and what is added to 128 (or 256) + n times it."""
    block = group if one.ratio == 1 else lines.value(f"udiv i64 {group}, {one.ratio}")
    blocks = one.groups // one.ratio

    def loaded(name: str, place: str, count: int, kind: str) -> str:
        """16 numbers as floats."""
        size = {"half": 2, "float": 4, "i8": 1}[kind]
        at = lines.value(f"add i64 {place}, {panel * count}")
        at = lines.value(f"mul i64 {at}, {LANES * size}")
        address = lines.value(f"getelementptr i8, ptr %{name}, i64 {at}")
        found = lines.value(f"load <16 x {kind}>, ptr {address}, align {size}")
        if kind == "float":
            return found
        instruction = "sitofp" if kind == "i8" else "fpext"
        return lines.value(f"{instruction} <16 x {kind}> {found} to <16 x float>")

    scale = loaded("factors", block, blocks, "float" if one.single else "half")
    if one.multiplied:
        scale = lines.value(f"fmul <16 x float> {scale}, {loaded('multipliers', group, one.groups, 'i8')}")
    # What is stored is more than the number of whole bytes, and of half bytes of symmetric weights.
    more = {4: 8.0 if one.asymmetry == SYMMETRIC else 0.0, 8: 128.0}[one.bits]
    least = _BASES[one.bits][0] + more
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


def _weighed(lines: _Lines, one: QuantisedPanels, loaded: str, first: int, scale: str, offset: str) -> str:
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


def _joined(lines: _Lines, low: str, high: str) -> str:
    """The upper halves of two floats' bits in one lane."""
    below = lines.value(f"lshr <16 x i32> {low}, {_all_bits(16)}")
    above = lines.value(f"and <16 x i32> {high}, {_all_bits(0xFFFF0000 - 2**32)}")
    return lines.value(f"or <16 x i32> {below}, {above}")


def _multiply(lines: _Lines, one: QuantisedPanels, number: int, start: int) -> None:
    """The loop over tiles of rows, and in it that over the depth of the groups that were taken apart."""
    every, depth = one.groups * one.group // TILE_DEPTH, one.together * one.group // TILE_DEPTH
    outer = lines.loop(f"rows{number}", one.rows // (TILE_ROWS * one.tall))
    index = next(outer)
    places = [(row, panel) for row in range(one.tall) for panel in range(one.wide)]
    first_row = lines.value(f"mul i64 {index}, {TILE_ROWS * one.tall * one.columns * 4}")
    results = []
    for row, panel in places:
        at = lines.value(f"add i64 {first_row}, {row * TILE_ROWS * one.columns * 4 + panel * LANES * 4}")
        results.append(lines.value(f"getelementptr i8, ptr %result, i64 {at}"))
    for tile, address in enumerate(results):
        if start:
            lines.add(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {address}, i64 {one.columns * 4})")
        else:
            lines.add(f"call void @llvm.x86.tilezero(i8 {tile})")
    tiles = lines.value(f"mul i64 {index}, {one.tall * every * _TILE_BYTES}")
    inner = lines.loop(f"depth{number}", depth)
    step = next(inner)
    for row in range(one.tall):
        at = lines.value(f"mul i64 {step}, {_TILE_BYTES}")
        at = lines.value(f"add i64 {at}, {(row * every + start * one.group // TILE_DEPTH) * _TILE_BYTES}")
        at = lines.value(f"add i64 {at}, {tiles}")
        address = lines.value(f"getelementptr i8, ptr %tiles, i64 {at}")
        lines.add(f"call void @llvm.x86.tileloadd64(i8 {4 + row}, ptr {address}, i64 64)")
    for panel in range(one.wide):
        at = lines.value(f"mul i64 {step}, {_TILE_BYTES}")
        at = lines.value(f"add i64 {at}, {panel * depth * _TILE_BYTES}")
        address = lines.value(f"getelementptr i8, ptr %apart, i64 {at}")
        lines.add(f"call void @llvm.x86.tileloadd64(i8 {6 + panel}, ptr {address}, i64 64)")
    for tile, (row, panel) in enumerate(places):
        lines.add(f"call void @llvm.x86.tdpbf16ps(i8 {tile}, i8 {4 + row}, i8 {6 + panel})")
    next(inner, None)
    for tile, address in enumerate(results):
        lines.add(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {address}, i64 {one.columns * 4})")
    next(outer, None)


class _Lines:
    """Lines of a function, whose values are numbered."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self._block = "entry"

    def value(self, text: str) -> str:
        """The name of what an instruction gives."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def add(self, text: str) -> None:
        """A line whose value nothing names."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Starts a block."""
        self.lines.append(f"{name}:")
        self._block = name

    def loop(self, name: str, count: int) -> Iterator[str]:
        """Gives the index of a loop of so many turns once; what is added until the next call is its body."""
        before = self._block
        self.add(f"br label %{name}")
        self.label(name)
        # What comes before in the last block of the body is known at its end only.
        place = len(self.lines)
        self.lines.append("")
        yield f"%{name}_index"
        self.lines[place] = f"  %{name}_index = phi i64 [ 0, %{before} ], [ %{name}_next, %{self._block} ]"
        self.add(f"%{name}_next = add i64 %{name}_index, 1")
        self.add(f"%{name}_more = icmp ult i64 %{name}_next, {count}")
        self.add(f"br i1 %{name}_more, label %{name}, label %{name}_end")
        self.label(f"{name}_end")


def _all_of(number: float) -> str:
    return "<" + ", ".join([f"float {number:.1f}"] * LANES) + ">"


def _all_bits(number: int) -> str:
    return "<" + ", ".join([f"i32 {number}"] * LANES) + ">"


def with_quantised_tiles(body: tirx.Stmt) -> tirx.Stmt:
    """A lowered body with the functions of this module that it calls."""
    used: dict[str, str] = {}

    def visit(call: Any) -> Any:
        first = call.args[0] if len(call.args) else None
        name = str(first.value) if isinstance(first, tvm.ir.StringImm) else ""
        made = _named(name)
        if made is not None:
            used[name] = made.text()
        return call

    mapped(body, (tvm.ir.Call, visit))
    if not used:
        return body
    own = [_DECLARED, _CONFIGURED.text, RELEASED.text, *(used[name] for name in sorted(used))]
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", tvm.ir.StringImm("\n".join(own)), body)


def _named(name: str) -> TiledRows | QuantisedPanels | None:
    """The function of a name; None of others."""
    if name.startswith(_ROWS_PREFIX):
        return TiledRows(int(name.removeprefix(_ROWS_PREFIX)))
    if not name.startswith(_PANELS_PREFIX):
        return None
    numbers = map(int, name.removeprefix(_PANELS_PREFIX).split("_"))
    kinds = (bool if field.type == "bool" else int for field in fields(QuantisedPanels))
    return QuantisedPanels(*(kind(number) for kind, number in zip(kinds, numbers, strict=True)))
