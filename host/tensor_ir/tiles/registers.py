"""Registers of matrices of x86 (AMX): permission and configuration, and the product of a tile over a sum.

TVM knows no type for these registers. What uses them are functions in LLVM's own language that name them by
number, imported into the module of a kernel and inlined, as those of `host.tensor_ir.bfloat16` are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
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
  %answer = call i64 asm sideeffect "syscall",
      "={{ax}},{{ax}},{{di}},{{si}},~{{rcx}},~{{r11}},~{{memory}},~{{flags}}"(i64 158, i64 4131, i64 18)
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
# Of the address of numbers of 32 bits: how many of them lie before the next line of the cache.
ALIGNED = Function(
    f"{PREFIX}aligned",
    f"""
define i32 @{PREFIX}aligned(ptr %numbers) {{
  %address = ptrtoint ptr %numbers to i64
  %short = trunc i64 %address to i32
  %before = sub i32 0, %short
  %bytes = and i32 %before, 63
  %count = lshr i32 %bytes, 2
  ret i32 %count
}}
""",
)


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
    for number, (height, row_bytes) in enumerate(registers):
        palette[16 + 2 * number : 18 + 2 * number] = row_bytes.to_bytes(2, "little")
        palette[48 + number] = height
    name = f"{PREFIX}configured_{bytes(palette[16:32:2]).hex()}_{bytes(palette[48:56]).hex()}"
    rows = "".join(f"\\{byte:02X}" for byte in palette)
    return Function(name, _CONFIGURE_TEXT.format(name=name, rows=rows))


def split_rows(rows: int) -> tuple[tuple[int, int], ...]:
    """The first row and the rows of each register that so many rows take.

    All have the same number, as few as cover them. The last ones begin with rows that others have, too, so
    that registers of one height are enough: nothing is lost by it, as each takes a product of its own.
    """
    count = -(-rows // ROWS)
    height = -(-rows // count)
    return tuple((min(number * height, rows - height), height) for number in range(count))


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
        ahead: bytes between what is loaded of the second operand and what is fetched into the second cache
            level for later; 0 fetches nothing.
    """

    kind: str
    rows: tuple[tuple[int, int, int], ...]
    panels: tuple[tuple[int, int], ...]
    row_bytes: tuple[int, int]
    loops: tuple[Loop, ...]
    groups: int
    ahead: int = 0

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
        # The rows of the registers are not in the text, and are another function's.
        digest = hashlib.sha256(f"{self.registers()}{text}".encode()).hexdigest()
        name = f"{PREFIX}{PRODUCTS[self.kind]}_{digest[:16]}"
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
    writer = _Writer(product, assigned)
    width = len(product.panels)
    for number in range(len(product.rows) * width):
        writer.lines.append(f"  call void @llvm.x86.tilezero(i8 {number})")
    loops = [loop for loop in product.loops if loop.extent > 1]
    writer.loops(loops, writer.steps, "%left", "%right")
    for number in range(len(product.rows) * width):
        tile, panel = divmod(number, width)
        place = product.rows[tile][1] + product.panels[panel][1]
        writer.moved("tilestored64", number, "%sums", place, product.row_bytes[1])
    lines = [
        "declare void @llvm.x86.tilezero(i8 immarg)",
        "declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)",
        "declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)",
        "declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)",
        f"declare void @{instruction}(i8 immarg, i8 immarg, i8 immarg)",
        "define i32 @{name}(ptr %left, ptr %right, ptr %sums) {",
        "start:",
        *writer.lines,
        "  ret i32 0",
        "}",
    ]
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes the body of a function; `block` is the one that the next line is in."""

    def __init__(self, product: TileProduct, assigned: _Assigned) -> None:
        self.lines: list[str] = []
        self._block = "start"
        self._names = 0
        self._product, self._assigned = product, assigned

    def moved(self, instruction: str, register: int, base: str, place: int, stride: int) -> None:
        """A register loaded or stored, with its place in bytes from an address."""
        address = self._at(base, place)
        self.lines.append(f"  call void @llvm.x86.{instruction}(i8 {register}, ptr {address}, i64 {stride})")

    def loops(self, loops: Sequence[Loop], body: Callable[[str, str], None], left: str, right: str) -> None:
        """Loops around a body, which gets the addresses of both operands in its iteration."""
        if not loops:
            body(left, right)
            return
        loop, number, before = loops[0], self._number(), self._block
        name, variable = f"loop{number}", f"%i{number}"
        self._block = name
        self.lines += [f"  br label %{name}", f"{name}:"]
        place = len(self.lines)
        self.loops(
            loops[1:], body, self._at(left, variable, loop.left), self._at(right, variable, loop.right)
        )
        start = f"  {variable} = phi i64 [ 0, %{before} ], [ {variable}.next, %{self._block} ]"
        self.lines.insert(place, start)
        self.lines += [
            f"  {variable}.next = add nuw nsw i64 {variable}, 1",
            f"  {variable}.more = icmp ult i64 {variable}.next, {loop.extent}",
            f"  br i1 {variable}.more, label %{name}, label %after{number}",
            f"after{number}:",
        ]
        self._block = f"after{number}"

    def steps(self, left: str, right: str) -> None:
        """The products of the innermost loop, whole ones and a shorter one."""
        product, step = self._product, self._product.step
        whole, rest = divmod(product.groups, step)
        loop = Loop(whole, GROUP_BYTES * step, ROW_BYTES * step)
        self.loops([loop] if whole > 1 else [], lambda a, b: self._products(step, a, b), left, right)
        if rest:
            self._products(rest, self._at(left, whole * loop.left), self._at(right, whole * loop.right))

    def _products(self, groups: int, left: str, right: str) -> None:
        """The products of one step: each operand is loaded once where it has registers enough."""
        product, assigned = self._product, self._assigned
        used: Counter[int] = Counter()
        tiles = []
        for _, _, height in product.rows:
            choice = assigned.left[height, groups]
            tiles.append(choice[used[height] % len(choice)])
            used[height] += 1
        every = assigned.right[groups]
        panels = [every[number % len(every)] for number in range(len(product.panels))]

        def load_tile(tile: int) -> None:
            place, _, _ = product.rows[tile]
            self.moved("tileloadd64", tiles[tile], left, place, product.row_bytes[0])

        def load_panel(panel: int) -> None:
            place = product.panels[panel][0]
            self.moved("tileloadd64", panels[panel], right, place, ROW_BYTES)
            for line in range(groups if product.ahead else 0):
                address = self._at(right, place + product.ahead + line * ROW_BYTES)
                self.lines.append(f"  call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")

        def multiply(tile: int, panel: int) -> None:
            numbers = (tile * len(panels) + panel, tiles[tile], panels[panel])
            operands = ", ".join(f"i8 {number}" for number in numbers)
            self.lines.append(f"  call void @llvm.x86.{PRODUCTS[product.kind]}({operands})")

        # The operand whose parts share registers is loaded part by part, inside of the other one.
        if len(set(tiles)) == len(tiles):
            for tile in range(len(tiles)):
                load_tile(tile)
            for panel in range(len(panels)):
                load_panel(panel)
                for tile in range(len(tiles)):
                    multiply(tile, panel)
            return
        kept = len(set(panels)) == len(panels)
        for panel in range(len(panels) if kept else 0):
            load_panel(panel)
        for tile in range(len(tiles)):
            load_tile(tile)
            for panel in range(len(panels)):
                if not kept:
                    load_panel(panel)
                multiply(tile, panel)

    def _at(self, base: str, place: str | int, size: int = 1) -> str:
        """The name of an address: so many bytes, or so many elements of a size, behind another."""
        number = self._number()
        if isinstance(place, str):
            self.lines.append(f"  %o{number} = mul nuw nsw i64 {place}, {size}")
            place = f"%o{number}"
        self.lines.append(f"  %p{number} = getelementptr i8, ptr {base}, i64 {place}")
        return f"%p{number}"

    def _number(self) -> int:
        self._names += 1
        return self._names
