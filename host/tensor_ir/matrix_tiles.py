"""Registers of matrices of x86 (AMX): their permission and configuration, and the product of a tile over a sum.

TVM knows no type for these registers. What uses them are functions in LLVM's own language that name them by
number, imported into the module of a kernel and inlined, as those of `host.tensor_ir.bfloat16` are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tvm

from targets.x86_64 import TILES_FEATURE

PREFIX = "edgetlm_tiles_"
RELEASE = f"{PREFIX}release"
# Rows of a register, bytes of a row, registers (Intel SDM, palette 1), and bytes that one lane of 32 bits
# multiplies in one product.
ROWS, ROW_BYTES, REGISTERS, GROUP_BYTES = 16, 64, 8, 4
# Instructions by the kind of dot product.
PRODUCTS = {"u8s8": "tdpbusd", "s8s8": "tdpbssd", "bf16bf16": "tdpbf16ps"}

_RELEASE_TEXT = f"""
declare void @llvm.x86.tilerelease()

define i32 @{RELEASE}() {{
  call void @llvm.x86.tilerelease()
  ret i32 0
}}
"""
# Linux saves the registers of processes that have asked for them (system call 158, arch_prctl, with
# ARCH_REQ_XCOMP_PERM for state 18). Threads that ask at the same time do no harm.
_CONFIGURE_TEXT = """
@{name}_asked = internal global i32 0
@{name}_rows = internal constant [64 x i8] c"{rows}"
declare void @llvm.x86.ldtilecfg(ptr)

define i32 @{name}() {{
  %asked = load i32, ptr @{name}_asked
  %first = icmp eq i32 %asked, 0
  br i1 %first, label %ask, label %ready
ask:
  %answer = call i64 asm sideeffect "syscall", "={{ax}},{{ax}},{{di}},{{si}},~{{rcx}},~{{r11}},~{{memory}},~{{flags}}"(
      i64 158, i64 4131, i64 18)
  store i32 1, ptr @{name}_asked
  br label %ready
ready:
  call void @llvm.x86.ldtilecfg(ptr @{name}_rows)
  ret i32 0
}}
"""


class Function(NamedTuple):
    """A function in LLVM's language.

    Attributes:
        name: under which it is called; equal names stand for equal texts.
        text: of the module that defines it.
    """

    name: str
    text: str


RELEASED = Function(RELEASE, _RELEASE_TEXT)


def has_tiles(target: tvm.target.Target) -> bool:
    """Whether the target has the registers."""
    return f"+{TILES_FEATURE}" in [str(name) for name in target.attrs.get("mattr", ())]


def configured(registers: Sequence[tuple[int, int]]) -> Function:
    """A function without arguments that asks Linux for the registers once, and configures them.

    A thread calls it before its first product of a kernel, and `RELEASED` after the last one: what other
    libraries of the process left in the registers is lost.

    Args:
        registers: rows, and bytes of a row, of each.
    """
    assert len(registers) <= REGISTERS
    palette = bytearray(64)
    palette[0] = 1
    for number, (rows, row_bytes) in enumerate(registers):
        palette[16 + 2 * number : 18 + 2 * number] = row_bytes.to_bytes(2, "little")
        palette[48 + number] = rows
    name = f"{PREFIX}configured_{bytes(palette[16:32:2]).hex()}_{bytes(palette[48:56]).hex()}"
    rows = "".join(f"\\{byte:02X}" for byte in palette)
    return Function(name, _CONFIGURE_TEXT.format(name=name, rows=rows))


class Loop(NamedTuple):
    """A loop of a sum.

    Attributes:
        extent: iterations.
        left, right: bytes from one iteration to the next in both operands.
    """

    extent: int
    left: int
    right: int


@dataclass(frozen=True)
class TileProduct:
    """Sums of a block of rows and panels over a whole reduction, with all sums in registers.

    Attributes:
        kind: of the dot product, see `PRODUCTS`.
        rows: of each tile: its place in the first operand and in the sums, in bytes, and its rows.
        panels: place of each panel of 16 lanes in the second operand and in the sums, in bytes.
        row_bytes: from one row to the next in the first operand, and in the sums.
        loops: of the sum around its steps, outermost first.
        groups: of the innermost loop, which lie side by side: four bytes of a row of the first operand, and
            a row of 64 bytes of the second one.
    """

    kind: str
    rows: tuple[tuple[int, int, int], ...]
    panels: tuple[tuple[int, int], ...]
    row_bytes: tuple[int, int]
    loops: tuple[Loop, ...]
    groups: int

    @property
    def step(self) -> int:
        """Groups of one product: the most that divide all of them, or as many as a register takes."""
        most = next(n for n in range(min(ROWS, self.groups), 0, -1) if self.groups % n == 0)
        return most if 2 * most > min(ROWS, self.groups) else min(ROWS, self.groups)

    @property
    def rest(self) -> int:
        """Groups of the last product of the innermost loop, if it is a shorter one; 0 otherwise."""
        return self.groups % self.step

    def registers(self) -> tuple[tuple[int, int], ...] | None:
        """Rows and bytes of a row of each register; None where there are too few of them."""
        made = _Assigned.of(self)
        return None if made is None else made.registers

    def function(self) -> Function:
        """A function of the addresses of both operands and of the sums, which it writes."""
        text = _product_text(self)
        name = f"{PREFIX}{PRODUCTS[self.kind]}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return Function(name, text.replace("{name}", name))


@dataclass(frozen=True)
class _Assigned:
    """Which registers the operands take; sums have the first ones, those of a tile side by side.

    Attributes:
        registers: rows and bytes of a row of each.
        left: registers of the first operand by rows and groups of a step.
        right: registers of the second operand by groups of a step.
    """

    registers: tuple[tuple[int, int], ...]
    left: dict[tuple[int, int], list[int]]
    right: dict[int, list[int]]

    @classmethod
    def of(cls, product: TileProduct) -> _Assigned | None:
        registers = [(height, ROW_BYTES) for _, _, height in product.rows for _ in product.panels]
        left: dict[tuple[int, int], list[int]] = {}
        right: dict[int, list[int]] = {}

        def taken(rows: int, row_bytes: int) -> list[int]:
            registers.append((rows, row_bytes))
            return [len(registers) - 1]

        for groups in filter(None, (product.step, product.rest)):
            for _, _, height in product.rows:
                if (height, groups) not in left:
                    left[height, groups] = taken(height, GROUP_BYTES * groups)
            right[groups] = taken(groups, ROW_BYTES)
        if len(registers) > REGISTERS:
            return None
        # What is left takes turns in the steps that are not the last.
        for _, _, height in product.rows[1:]:
            key = (height, product.step)
            if len(registers) < REGISTERS and len(left[key]) < sum(h == height for *_, h in product.rows):
                left[key] += taken(height, GROUP_BYTES * product.step)
        while len(registers) < REGISTERS and len(right[product.step]) < len(product.panels):
            right[product.step] += taken(product.step, ROW_BYTES)
        return cls(tuple(registers), left, right)


def _product_text(product: TileProduct) -> str:
    """Text of the module of `TileProduct.function`, without its name."""
    assigned = _Assigned.of(product)
    assert assigned is not None, "the caller has asked for the registers"
    instruction = f"llvm.x86.{PRODUCTS[product.kind]}"
    whole, rest = divmod(product.groups, product.step)
    step = Loop(whole, GROUP_BYTES * product.step, ROW_BYTES * product.step)
    sums = range(len(product.rows) * len(product.panels))
    body = _looped(product, assigned, (*product.loops, step) if whole > 1 or not rest else product.loops)
    stores = []
    for tile, (_, place, _) in enumerate(product.rows):
        for panel, (_, beside) in enumerate(product.panels):
            number = tile * len(product.panels) + panel
            stores.append(f"  %c{number} = getelementptr i8, ptr %sums, i64 {place + beside}")
            stores.append(
                f"  call void @llvm.x86.tilestored64(i8 {number}, ptr %c{number}, i64 {product.row_bytes[1]})"
            )
    lines = [
        "declare void @llvm.x86.tilezero(i8 immarg)",
        "declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)",
        "declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)",
        f"declare void @{instruction}(i8 immarg, i8 immarg, i8 immarg)",
        "define i32 @{name}(ptr %left, ptr %right, ptr %sums) {",
        "start:",
        *[f"  call void @llvm.x86.tilezero(i8 {number})" for number in sums],
        *body,
        *stores,
        "  ret i32 0",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _looped(product: TileProduct, assigned: _Assigned, loops: Sequence[Loop]) -> list[str]:
    """Lines of the loops of the sum, and of the shorter products at the end of the innermost one."""
    loops = [loop for loop in loops if loop.extent > 1]
    whole, rest = divmod(product.groups, product.step)
    stepped = whole > 1
    if rest and not stepped:
        # One step and a shorter one, both in the body.
        return _nested(product, assigned, loops, 0, "%left", "%right", "start", stepped=False)[0]
    return _nested(product, assigned, loops, 0, "%left", "%right", "start", stepped=stepped)[0]


def _nested(
    product: TileProduct,
    assigned: _Assigned,
    loops: Sequence[Loop],
    depth: int,
    left: str,
    right: str,
    block: str,
    stepped: bool,
) -> tuple[list[str], str]:
    """Lines of the loops from `depth` on, and the block that they end in.

    Args:
        left, right: names of the addresses of the operands there.
        block: that the lines before are in.
        stepped: whether the innermost loop is the one over steps, with what remains of them after it.
    """
    whole, rest = divmod(product.groups, product.step)
    if depth == len(loops):
        lines = _products(product, assigned, product.step, left, right, f"{depth}")
        if rest and not stepped:
            lines += _remaining(product, assigned, left, right, whole, rest)
        return lines, block
    loop, name = loops[depth], f"loop{depth}"
    inner, last = _nested(
        product, assigned, loops, depth + 1, f"%left{depth}", f"%right{depth}", name, stepped
    )
    lines = [
        f"  br label %{name}",
        f"{name}:",
        f"  %i{depth} = phi i64 [ 0, %{block} ], [ %next{depth}, %{last} ]",
        f"  %l{depth} = mul nuw nsw i64 %i{depth}, {loop.left}",
        f"  %r{depth} = mul nuw nsw i64 %i{depth}, {loop.right}",
        f"  %left{depth} = getelementptr i8, ptr {left}, i64 %l{depth}",
        f"  %right{depth} = getelementptr i8, ptr {right}, i64 %r{depth}",
        *inner,
        f"  %next{depth} = add nuw nsw i64 %i{depth}, 1",
        f"  %more{depth} = icmp ult i64 %next{depth}, {loop.extent}",
        f"  br i1 %more{depth}, label %{name}, label %after{depth}",
        f"after{depth}:",
    ]
    if rest and stepped and depth == len(loops) - 1:
        lines += _remaining(product, assigned, left, right, whole, rest)
    return lines, f"after{depth}"


def _remaining(
    product: TileProduct, assigned: _Assigned, left: str, right: str, whole: int, rest: int
) -> list[str]:
    """Lines of the shorter products behind all whole steps."""
    done = whole * product.step
    return [
        f"  %lrest = getelementptr i8, ptr {left}, i64 {GROUP_BYTES * done}",
        f"  %rrest = getelementptr i8, ptr {right}, i64 {ROW_BYTES * done}",
        *_products(product, assigned, rest, "%lrest", "%rrest", "rest"),
    ]


def _products(
    product: TileProduct, assigned: _Assigned, groups: int, left: str, right: str, mark: str
) -> list[str]:
    """Lines of the products of one step: each operand is loaded once where it has registers enough."""
    lines: list[str] = []

    def load(number: int, name: str, base: str, place: int, stride: int) -> None:
        lines.append(f"  %{name} = getelementptr i8, ptr {base}, i64 {place}")
        lines.append(f"  call void @llvm.x86.tileloadd64(i8 {number}, ptr %{name}, i64 {stride})")

    used: dict[int, int] = {}
    tiles: list[int] = []
    for _, _, height in product.rows:
        choice = assigned.left[height, groups]
        tiles.append(choice[used.get(height, 0) % len(choice)])
        used[height] = used.get(height, 0) + 1
    panels = [assigned.right[groups][n % len(assigned.right[groups])] for n in range(len(product.panels))]
    instruction, width = f"llvm.x86.{PRODUCTS[product.kind]}", len(product.panels)

    def load_tile(tile: int) -> None:
        load(tiles[tile], f"a{mark}_{tile}", left, product.rows[tile][0], product.row_bytes[0])

    def load_panel(panel: int) -> None:
        load(panels[panel], f"b{mark}_{panel}", right, product.panels[panel][0], ROW_BYTES)

    def multiply(tile: int, panel: int) -> None:
        numbers = (tile * width + panel, tiles[tile], panels[panel])
        lines.append(f"  call void @{instruction}({', '.join(f'i8 {n}' for n in numbers)})")

    # The operand whose registers all its parts share is loaded part by part, inside of the other one.
    if len(set(tiles)) == len(tiles):
        for tile in range(len(tiles)):
            load_tile(tile)
        for panel in range(width):
            load_panel(panel)
            for tile in range(len(tiles)):
                multiply(tile, panel)
        return lines
    apart = len(set(panels)) == width
    if apart:
        for panel in range(width):
            load_panel(panel)
    for tile in range(len(tiles)):
        load_tile(tile)
        for panel in range(width):
            if not apart:
                load_panel(panel)
            multiply(tile, panel)
    return lines
