"""Tables of 256 bytes by instructions that choose among the bytes of registers.

TVM loads what a vector of indices names one element after the other. Where the buffer is 256 bytes and the
indices are bytes, a function in LLVM's own language takes the place of the load. It is imported into the
module of a kernel and inlined, and LLVM keeps the table in registers for a whole loop.

- AVX-512 VBMI: VPERMI2B chooses among 128 bytes by seven bits of each index; two such choices, and a third by
  the uppermost bit (Intel SDM).
- AArch64: TBL chooses among 64 bytes and gives 0 for larger indices, TBX leaves what was there (Arm ARM): one
  of the first, and three of the second with indices that are less by 64, 128 and 192.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from host.tensor_ir.structural import mapped
from targets.x86_64 import BYTE_TABLES_FEATURE

_ENTRIES, _REGISTER, _ARM_BYTES = 256, 64, 16
_PREFIX = "edgetlm_byte_table_"
_LOOK_UP = """
declare <64 x i8> @llvm.x86.avx512.vpermi2var.qi.512(<64 x i8>, <64 x i8>, <64 x i8>)

define <{lanes} x i8> @{name}(ptr %table, <{lanes} x i8> %given) {{
  %p1 = getelementptr i8, ptr %table, i64 64
  %p2 = getelementptr i8, ptr %table, i64 128
  %p3 = getelementptr i8, ptr %table, i64 192
  %t0 = load <64 x i8>, ptr %table, align 1
  %t1 = load <64 x i8>, ptr %p1, align 1
  %t2 = load <64 x i8>, ptr %p2, align 1
  %t3 = load <64 x i8>, ptr %p3, align 1
  %index = shufflevector <{lanes} x i8> %given, <{lanes} x i8> poison, <64 x i32> <{wider}>
  %low = call <64 x i8> @llvm.x86.avx512.vpermi2var.qi.512(<64 x i8> %t0, <64 x i8> %index, <64 x i8> %t1)
  %high = call <64 x i8> @llvm.x86.avx512.vpermi2var.qi.512(<64 x i8> %t2, <64 x i8> %index, <64 x i8> %t3)
  %upper = icmp slt <64 x i8> %index, zeroinitializer
  %found = select <64 x i1> %upper, <64 x i8> %high, <64 x i8> %low
  %result = shufflevector <64 x i8> %found, <64 x i8> poison, <{lanes} x i32> <{narrower}>
  ret <{lanes} x i8> %result
}}
"""
_ARM_LANES = (2, 4, 8, 16)
_ARM_DECLARED = """
declare <16 x i8> @llvm.aarch64.neon.tbl4.v16i8(<16 x i8>, <16 x i8>, <16 x i8>, <16 x i8>, <16 x i8>)
declare <16 x i8> @llvm.aarch64.neon.tbx4.v16i8(
  <16 x i8>, <16 x i8>, <16 x i8>, <16 x i8>, <16 x i8>, <16 x i8>)
"""


def byte_tables_for(target: tvm.target.Target) -> Callable[[tirx.Stmt], tirx.Stmt] | None:
    """What rewrites a lowered body for the instructions of a target; None where it has none."""
    if has_byte_tables(target):
        return lambda body: _with_byte_tables(body, range(2, _REGISTER + 1), "", _x86_function)
    if str(target.attrs.get("mtriple", "")).startswith("aarch64"):
        return lambda body: _with_byte_tables(body, _ARM_LANES, _ARM_DECLARED, _arm_function)
    return None


def has_byte_tables(target: tvm.target.Target) -> bool:
    """Whether the target has the instruction of AVX-512 VBMI."""
    return f"+{BYTE_TABLES_FEATURE}" in [str(name) for name in target.attrs.get("mattr", ())]


def _with_byte_tables(
    body: tirx.Stmt, lanes: Container[int], declared: str, write: Callable[[str, int], str]
) -> tirx.Stmt:
    """A lowered body in which vectors of bytes are looked up in tables by functions of `write`."""
    choosing: list[Any] = []
    tvm_ffi.structural_walk(body, (tirx.Cast, choosing.append))
    # Of the thousands of loads of unrolled code none is looked at where no byte becomes an index.
    if not any(str(cast.value.ty.dtype).startswith("uint8x") for cast in choosing):
        return body
    used: dict[int, str] = {}
    made = mapped(body, (tvm.ir.TensorLoad, _looked_up(used, lanes, write)))
    if not used:
        return body
    text = tvm.ir.StringImm(declared + "".join(used[lanes] for lanes in sorted(used)))
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, made)


def _x86_function(name: str, lanes: int) -> str:
    """Text of the function that looks a vector up."""
    return _LOOK_UP.format(
        lanes=lanes, name=name, wider=_places(lanes, _REGISTER), narrower=_places(lanes, lanes)
    )


def _arm_function(name: str, lanes: int) -> str:
    """Text of the function that looks a vector up."""
    vector, parts = "<16 x i8>", _ENTRIES // _ARM_BYTES
    lines = [f"define <{lanes} x i8> @{name}(ptr %table, <{lanes} x i8> %given) {{"]
    for part in range(parts):
        lines += [
            f"  %p{part} = getelementptr i8, ptr %table, i64 {part * _ARM_BYTES}",
            f"  %t{part} = load {vector}, ptr %p{part}, align 1",
        ]
    lines.append(
        f"  %i0 = shufflevector <{lanes} x i8> %given, <{lanes} x i8> poison, "
        f"<16 x i32> <{_places(lanes, _ARM_BYTES)}>"
    )
    for step in range(parts // 4):
        registers = ", ".join(f"{vector} %t{4 * step + register}" for register in range(4))
        if step:
            less = ", ".join([f"i8 {4 * step * _ARM_BYTES}"] * _ARM_BYTES)
            lines.append(f"  %i{step} = sub {vector} %i0, <{less}>")
        before = f"{vector} %r{step - 1}, " if step else ""
        lines.append(
            f"  %r{step} = call {vector} @llvm.aarch64.neon.{'tbx4' if step else 'tbl4'}.v16i8("
            f"{before}{registers}, {vector} %i{step})"
        )
    lines += [
        f"  %made = shufflevector {vector} %r{parts // 4 - 1}, {vector} poison, "
        f"<{lanes} x i32> <{_places(lanes, lanes)}>",
        f"  ret <{lanes} x i8> %made",
        "}",
        "",
    ]
    return "\n".join(lines)


def _places(lanes: int, wanted: int) -> str:
    """The places of a vector in one of another length."""
    return ", ".join(f"i32 {lane if lane < lanes else 'poison'}" for lane in range(wanted))


def _looked_up(
    used: dict[int, str], possible: Container[int], write: Callable[[str, int], str]
) -> Callable[[Any], Any]:
    """Replaces loads by calls, and keeps the functions that are called in `used`."""

    def visit(load: Any) -> Any:
        found = _bytes_that_choose(load)
        if found is None or found[1] not in possible:
            return load
        index, lanes = found
        name = f"{_PREFIX}{lanes}"
        used[lanes] = write(name, lanes)
        table = tirx.address_of(tirx.BufferLoad(load.source, [tirx.const(0, "int32")]))
        kind = str(load.ty.dtype)
        if not kind.startswith("uint8"):
            called = tirx.call_pure_extern(f"uint8x{lanes}", name, table, index)
            return tirx.reinterpret(kind, called)
        return tirx.call_pure_extern(kind, name, table, index)

    return visit


def _bytes_that_choose(load: Any) -> tuple[Any, int] | None:
    """The vector of bytes by which a load chooses among 256 bytes, and its length."""
    shape = load.source.shape
    if len(shape) != 1 or not isinstance(shape[0], tirx.IntImm) or int(shape[0]) != _ENTRIES:
        return None
    kind = tvm.DataType(str(load.ty.dtype))
    index = load.indices[0]
    if kind.bits != 8 or not isinstance(index, tirx.Cast):
        return None
    chosen = str(index.value.ty.dtype) == f"uint8x{kind.lanes}"
    return (index.value, kind.lanes) if chosen else None
