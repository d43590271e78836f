"""Dot products of each lane's own bytes as tensor intrinsics: C[L] += sum over 4 of A[L, 4] B[L, 4]."""

from __future__ import annotations

import tvm
from tvm.s_tir import TensorIntrin

# LLVM's intrinsics of VPDPBUSD, unsigned by signed bytes (Intel SDM), by lanes.
_INSTRUCTIONS = {
    16: "llvm.x86.avx512.vpdpbusd.512",
    8: "llvm.x86.avx512.vpdpbusd.256",
    4: "llvm.x86.avx512.vpdpbusd.128",
}
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
                    c[vi] = c[vi] + (a[vi] >> vk * 8 & 255) * T.cast(b[vi, vk], "int32")
"""
_IMPLEMENTATION = """
        c[T.ramp(T.int32(0), 1, {lanes})] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("{instruction}"),
            c.vload([0], "int32x{lanes}"),
            T.reinterpret(a.vload([0], "int32x{lanes}"), dtype="uint8x{width}"),
            b.vload([0, 0], "int8x{width}"),
            dtype="int32x{lanes}",
        )
"""


def has_intrinsic(lanes: int) -> bool:
    """Whether there is an instruction for vectors of so many 32-bit lanes."""
    return lanes in _INSTRUCTIONS


def intrinsic(lanes: int) -> str:
    """The name under which `Schedule.tensorize` finds the products of a vector; made when first asked for."""
    name = f"edgetlm.lane_dots_{lanes}"
    if TensorIntrin.get(name, allow_missing=True) is None:
        given = {"lanes": lanes, "width": 4 * lanes, "instruction": _INSTRUCTIONS[lanes]}
        description, implementation = (
            tvm.script.from_source(
                (_HEAD + body.lstrip("\n")).format(**given), extra_vars={"T": tvm.script.tirx}
            )
            for body in (_DESCRIPTION, _IMPLEMENTATION)
        )
        TensorIntrin.register(name, description, implementation)
    return name
