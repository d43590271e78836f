"""Tables of 256 bytes on AVX-512: VPERMI2B, which chooses among 128 bytes by seven bits of each index.

TVM loads what a vector of indices names one element after the other. Where the buffer is 256 bytes and the
indices are bytes, a function in LLVM's own language takes the place of the load: two such choices, and a
third by the uppermost bit (Intel SDM, VPERMI2B). It is imported into the module of a kernel and inlined, and
LLVM keeps the table in registers for a whole loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx

from host.tensor_ir.structural import mapped
from targets.x86_64 import BYTE_TABLES_FEATURE

_ENTRIES, _REGISTER = 256, 64
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


def has_byte_tables(target: tvm.target.Target) -> bool:
    """Whether the target has the instruction."""
    return f"+{BYTE_TABLES_FEATURE}" in [str(name) for name in target.attrs.get("mattr", ())]


def with_byte_tables(body: tirx.Stmt) -> tirx.Stmt:
    """A lowered body in which vectors of bytes are looked up in tables by the instruction."""
    used: dict[int, str] = {}
    made = mapped(body, (tvm.ir.TensorLoad, _looked_up(used)))
    if not used:
        return body
    text = tvm.ir.StringImm("".join(used[lanes] for lanes in sorted(used)))
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, made)


def _looked_up(used: dict[int, str]) -> Callable[[Any], Any]:
    """Replaces loads by calls, and keeps the functions that are called in `used`."""

    def visit(load: Any) -> Any:
        found = _bytes_that_choose(load)
        if found is None:
            return load
        index, lanes = found
        name = f"{_PREFIX}{lanes}"
        wider = (f"i32 {lane if lane < lanes else 'poison'}" for lane in range(_REGISTER))
        narrower = (f"i32 {lane}" for lane in range(lanes))
        used[lanes] = _LOOK_UP.format(
            lanes=lanes, name=name, wider=", ".join(wider), narrower=", ".join(narrower)
        )
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
    if kind.bits != 8 or not 1 < kind.lanes <= _REGISTER or not isinstance(index, tirx.Cast):
        return None
    chosen = str(index.value.ty.dtype) == f"uint8x{kind.lanes}"
    return (index.value, kind.lanes) if chosen else None
