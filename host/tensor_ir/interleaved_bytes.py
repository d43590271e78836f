"""Vectors of bytes that are put together side by side: one choice among bytes for four, or eight moves.

A program writes int32(a) | int32(b) << 8 | int32(c) << 16 | int32(d) << 24 for what a dot product of bytes
multiplies at once; int32(a) & 255 and so on for bytes with a sign. LLVM would widen each vector, shift it and
join them. The same bytes are those of a, b, c and d one behind the other in another order, which one
instruction of AVX-512 VBMI takes (VPERMB, Intel SDM). It is in a function in LLVM's own language, since LLVM
takes a general order of four vectors for eight interleaving moves and three that join them. Vectors of up to
256 bits are interleaved so: five moves at most. On AArch64 four vectors of 16 bytes are interleaved in pairs,
and the pairs again: eight moves (ZIP1, ZIP2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx

from host.tensor_ir.byte_tables import has_byte_tables
from host.tensor_ir.structural import mapped

_BYTES, _LARGEST = 4, 255
# Lanes of the vectors that LLVM interleaves, and of those that the instruction takes as one.
_SHORT, _LONG = (4, 8), 16
_NAME = f"edgetlm_interleaved_{_LONG}"
_INTERLEAVED = """
@{name}_order = weak hidden global <64 x i8> <{order}>, align 64

declare <64 x i8> @llvm.x86.avx512.permvar.qi.512(<64 x i8>, <64 x i8>)

define <64 x i8> @{name}(<16 x i8> %a, <16 x i8> %b, <16 x i8> %c, <16 x i8> %d) {{
  %low = shufflevector <16 x i8> %a, <16 x i8> %b, <32 x i32> <{low}>
  %high = shufflevector <16 x i8> %c, <16 x i8> %d, <32 x i32> <{low}>
  %all = shufflevector <32 x i8> %low, <32 x i8> %high, <64 x i32> <{all}>
  %order = load <64 x i8>, ptr @{name}_order, align 64, !invariant.load !0
  %found = call <64 x i8> @llvm.x86.avx512.permvar.qi.512(<64 x i8> %all, <64 x i8> %order)
  ret <64 x i8> %found
}}

!0 = !{{}}
"""
_IN_PAIRS = """
define <64 x i8> @{name}(<16 x i8> %a, <16 x i8> %b, <16 x i8> %c, <16 x i8> %d) {{
  %ac0 = shufflevector <16 x i8> %a, <16 x i8> %c, <16 x i32> <{first}>
  %ac1 = shufflevector <16 x i8> %a, <16 x i8> %c, <16 x i32> <{second}>
  %bd0 = shufflevector <16 x i8> %b, <16 x i8> %d, <16 x i32> <{first}>
  %bd1 = shufflevector <16 x i8> %b, <16 x i8> %d, <16 x i32> <{second}>
  %r0 = shufflevector <16 x i8> %ac0, <16 x i8> %bd0, <16 x i32> <{first}>
  %r1 = shufflevector <16 x i8> %ac0, <16 x i8> %bd0, <16 x i32> <{second}>
  %r2 = shufflevector <16 x i8> %ac1, <16 x i8> %bd1, <16 x i32> <{first}>
  %r3 = shufflevector <16 x i8> %ac1, <16 x i8> %bd1, <16 x i32> <{second}>
  %low = shufflevector <16 x i8> %r0, <16 x i8> %r1, <32 x i32> <{low}>
  %high = shufflevector <16 x i8> %r2, <16 x i8> %r3, <32 x i32> <{low}>
  %all = shufflevector <32 x i8> %low, <32 x i8> %high, <64 x i32> <{all}>
  ret <64 x i8> %all
}}
"""


def with_interleaved_bytes(body: tirx.Stmt, target: tvm.target.Target) -> tirx.Stmt:
    """A lowered body in which vectors of four bytes a lane are made by one order of their bytes."""
    used: list[int] = []
    in_pairs = str(target.attrs.get("mtriple", "")).startswith("aarch64")
    made = mapped(body, (tirx.BitwiseOr, _interleaved(in_pairs or has_byte_tables(target), used)))
    if _LONG not in used:
        return made
    halves = [
        [place for lane in range(start, start + _LONG // 2) for place in (lane, _LONG + lane)]
        for start in (0, _LONG // 2)
    ]
    text = (_IN_PAIRS if in_pairs else _INTERLEAVED).format(
        name=_NAME,
        low=_list("i32", range(2 * _LONG)),
        all=_list("i32", range(_BYTES * _LONG)),
        order=_list("i8", _order(_LONG)),
        first=_list("i32", halves[0]),
        second=_list("i32", halves[1]),
    )
    return tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", tvm.ir.StringImm(text), made)


def _list(kind: str, numbers: Any) -> str:
    return ", ".join(f"{kind} {number}" for number in numbers)


def _order(lanes: int) -> list[int]:
    """Where each byte of the result lies among four vectors of bytes, one behind the other."""
    return [byte * lanes + lane for lane in range(lanes) for byte in range(_BYTES)]


def _interleaved(long: bool, used: list[int]) -> Callable[[Any], Any]:
    """Replaces what joins four bytes in each lane, and notes the lanes in `used`."""

    def visit(node: Any) -> Any:
        parts = _parts(node)
        if parts is None:
            return node
        lanes = tvm.DataType(str(node.ty.dtype)).lanes
        if lanes == _LONG and long:
            joined = tirx.call_pure_extern("uint8x64", _NAME, *parts)
        elif lanes in _SHORT:
            joined = tirx.Shuffle(parts, [tirx.const(place, "int32") for place in _order(lanes)])
        else:
            return node
        used.append(lanes)
        return tirx.reinterpret(f"int32x{lanes}", joined)

    return visit


def _parts(total: Any) -> list[Any] | None:
    """The four vectors of bytes, from the lowest on, where a number is made of them and of nothing else."""
    kind = tvm.DataType(str(total.ty.dtype))
    if kind.lanes < 2 or str(total.ty.dtype) != f"int32x{kind.lanes}":
        return None
    found: dict[int, Any] = {}
    waiting = [total]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tirx.BitwiseOr):
            waiting += [node.a, node.b]
            continue
        place, part = 0, node
        if isinstance(node, tirx.LShift):
            bits = _literal(node.b)
            if bits is None or bits % 8:
                return None
            place, part = bits // 8, node.a
        value = _bytes(part, kind.lanes)
        if place in found or value is None:
            return None
        found[place] = value
    return [found[place] for place in range(_BYTES)] if sorted(found) == list(range(_BYTES)) else None


def _bytes(number: Any, lanes: int) -> Any | None:
    """The vector of bytes that is widened to a number; None where there is none."""
    value = _literal(number)
    if value is not None and 0 <= value <= _LARGEST:
        return tirx.Broadcast(tirx.const(value, "uint8"), lanes)
    kind = "uint8"
    if isinstance(number, tirx.BitwiseAnd) and _literal(number.b) == _LARGEST:
        number, kind = number.a, "int8"
    if not isinstance(number, tirx.Cast) or str(number.value.ty.dtype) != f"{kind}x{lanes}":
        return None
    return number.value if kind == "uint8" else tirx.reinterpret(f"uint8x{lanes}", number.value)


def _literal(value: Any) -> int | None:
    """The number that a vector repeats; None where it is computed."""
    number = value.value if isinstance(value, tirx.Broadcast) else None
    return int(number.value) if isinstance(number, tirx.IntImm) else None
