"""Dot products of each lane's own bytes as tensor intrinsics: C[L] += sum over 4 of A[L, 4] B[L, 4]."""

from __future__ import annotations

import tvm
from tvm.s_tir import TensorIntrin

# LLVM's intrinsics by the kind of dot product and lanes: VPDPBUSD, unsigned by signed bytes (Intel SDM), and
# SDOT, signed ones (Arm ARM, FEAT_DotProd).
_INSTRUCTIONS = {
    ("u8s8", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("u8s8", 8): "llvm.x86.avx512.vpdpbusd.256",
    ("u8s8", 4): "llvm.x86.avx512.vpdpbusd.128",
    ("s8s8", 4): "llvm.aarch64.neon.sdot.v4i32.v16i8",
}
# The byte of a number that the schedule's program has, by the kind, and the type of four of them.
_BYTES = {"u8s8": "(a[vi] >> vk * 8 & 255)", "s8s8": "T.shift_right(T.shift_left(a[vi], 24 - vk * 8), 24)"}
_TYPES = {"u8s8": "uint8", "s8s8": "int8"}
_HEAD = """
@T.prim_func(s_tir=True, private=True)
def function(
    a: T.Buffer(({lanes},), "int32", offset_factor=1),
    b: T.Buffer(({lanes}, 4), "int8", offset_factor=1),
    c: T.Buffer(({lanes},), "int32", scope="local", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:{lanes}], a[0:{lanes}], b[0:{lanes}, 0:4])
        T.writes(c[0:{lanes}])
"""
_DESCRIPTION = """
        for i in T.serial(0, {lanes}):
            for k in T.serial(0, 4):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    c[vi] = c[vi] + {byte} * T.cast(b[vi, vk], "int32")
"""
_IMPLEMENTATION = """
        c[T.ramp(T.int32(0), 1, {lanes})] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("{instruction}"),
            c.vload([0], "int32x{lanes}"),
            T.reinterpret(a.vload([0], "int32x{lanes}"), dtype="{type}x{width}"),
            b.vload([0, 0], "int8x{width}"),
            dtype="int32x{lanes}",
        )
"""


def has_intrinsic(kind: str, lanes: int) -> bool:
    """Whether a kind of dot product has an instruction for vectors of so many 32-bit lanes."""
    return (kind, lanes) in _INSTRUCTIONS


def instruction_of(kind: str, lanes: int) -> str:
    """LLVM's name of the instruction."""
    return _INSTRUCTIONS[kind, lanes]


def intrinsic(kind: str, lanes: int) -> str:
    """The name under which `Schedule.tensorize` finds the products of a vector; made when first asked for."""
    name = f"edgetlm.lane_dots_{kind}_{lanes}"
    if TensorIntrin.get(name, allow_missing=True) is None:
        given = {
            "lanes": lanes,
            "width": 4 * lanes,
            "instruction": _INSTRUCTIONS[kind, lanes],
            "byte": _BYTES[kind],
            "type": _TYPES[kind],
        }
        description, implementation = (
            tvm.script.from_source(
                (_HEAD + body.lstrip("\n")).format(**given), extra_vars={"T": tvm.script.tirx}
            )
            for body in (_DESCRIPTION, _IMPLEMENTATION)
        )
        TensorIntrin.register(name, description, implementation)
    return name
