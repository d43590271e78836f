"""Lines of functions in LLVM's own language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from host.tensor_ir.tiles.registers import REGISTERS, ROWS, configured

# Outputs of a row of a register of sums; bfloat16 numbers of a row of an operand; bytes of a register.
LANES, DEPTH, TILE_BYTES = 16, 32, 1024
LINE_BYTES = 64
# Asks Linux for the registers and configures all of them as whole.
CONFIGURED = configured([(ROWS, 64)] * REGISTERS)
# Registers of matrices as instructions take them.
DECLARED = """
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8, i8, i8)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <16 x float> @llvm.roundeven.v16f32(<16 x float>)
declare <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float>, <16 x float>, <16 x float>, i16, i32)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""


class Lines:
    """Lines of a function, whose values are numbered."""

    def __init__(self) -> None:
        self.lines: list[str] = ["entry:"]
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

    @contextmanager
    def loop(self, name: str, count: int | str) -> Iterator[str]:
        """A loop of so many turns, one at least, around what is added meanwhile; gives its index.

        Args:
            name: of its block, which no other has.
            count: of the turns, or the value that says it.
        """
        before = self._block
        self.add(f"br label %{name}")
        self.label(name)
        # Which block the body ends in is known behind it.
        place = len(self.lines)
        self.lines.append("")
        index = f"%{name}_index"
        yield index
        self.lines[place] = f"  {index} = phi i64 [ 0, %{before} ], [ %{name}_next, %{self._block} ]"
        self.add(f"%{name}_next = add i64 {index}, 1")
        self.add(f"%{name}_more = icmp ult i64 %{name}_next, {count}")
        self.add(f"br i1 %{name}_more, label %{name}, label %{name}_end")
        self.label(f"{name}_end")

    @contextmanager
    def when(self, name: str, condition: str) -> Iterator[None]:
        """What is added meanwhile, where a condition holds; `name` is of its block, which no other has."""
        self.add(f"br i1 {condition}, label %{name}, label %{name}_end")
        self.label(name)
        yield
        self.add(f"br label %{name}_end")
        self.label(f"{name}_end")

    def sum(self, *terms: tuple[str, int] | int) -> str:
        """The sum of values times numbers, and of numbers."""
        total = ""
        for term in terms:
            if isinstance(term, int):
                part = str(term)
            elif term[1] == 1:
                part = term[0]
            else:
                part = self.value(f"mul i64 {term[0]}, {term[1]}")
            total = self.value(f"add i64 {total}, {part}") if total else part
        return total

    def place(self, base: str, offset: str) -> str:
        """The address so many bytes behind a pointer."""
        return self.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, tile: int, address: str, stride: int) -> None:
        """Fills a register with rows that lie so many bytes apart."""
        self.add(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {address}, i64 {stride})")

    def store(self, tile: int, address: str, stride: int) -> None:
        """Stores a register."""
        self.add(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {address}, i64 {stride})")

    def fetch(self, address: str) -> None:
        """Fetches a line of the cache that is read later, into the second level."""
        self.add(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")

    def zero(self, tile: int) -> None:
        """Sets a register to zero."""
        self.add(f"call void @llvm.x86.tilezero(i8 {tile})")

    def multiply(self, sums: int, rows: int, columns: int) -> None:
        """Adds products of bfloat16 numbers."""
        self.add(f"call void @llvm.x86.tdpbf16ps(i8 {sums}, i8 {rows}, i8 {columns})")


def defined(name: str, arguments: str, lines: Lines) -> str:
    """The text of a function that gives 0."""
    return "\n".join([f"define i32 @{name}({arguments}) {{", *lines.lines, "  ret i32 0", "}"])
