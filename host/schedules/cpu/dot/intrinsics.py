"""Dot products of bytes as tensor intrinsics: C[L] += sum over four of A[4] B[L, 4]."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.s_tir import TensorIntrin

from host.errors import ScheduleError

# What the decision `intrinsic` says: plain code, or the instruction.
PLAIN, INSTRUCTION = 0, 1

# LLVM's intrinsic by `HardwareModel.dot_product` and 32-bit lanes. VPDPBUSD multiplies unsigned by signed
# bytes (Intel SDM), SDOT signed ones (Arm ARM, FEAT_DotProd); neither saturates.
_INSTRUCTIONS = {
    ("u8s8", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("u8s8", 8): "llvm.x86.avx512.vpdpbusd.256",
    ("u8s8", 4): "llvm.x86.avx512.vpdpbusd.128",
    ("s8s8", 4): "llvm.aarch64.neon.sdot.v4i32.v16i8",
}
_ACTIVATIONS = {"u8s8": "uint8", "s8s8": "int8"}

# TVMScript, and not built by hand, because `tensorize` compares the description with a schedule's program.
_HEAD = """
@T.prim_func(s_tir=True, private=True)
def function(
    a: T.Buffer((4,), "{activations}", offset_factor=1),
    b: T.Buffer(({lanes}, 4), "int8", offset_factor=1),
    c: T.Buffer(({lanes},), "int32", scope="local", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:{lanes}], a[0:4], b[0:{lanes}, 0:4])
        T.writes(c[0:{lanes}])
"""
_DESCRIPTION = """
        for i in T.serial(0, {lanes}):
            for k in T.serial(0, 4):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    c[vi] = c[vi] + T.cast(a[vk], "int32") * T.cast(b[vi, vk], "int32")
"""
# One group of activations goes to every lane: a load that broadcasts 32 bits.
_IMPLEMENTATION = """
        group = T.reinterpret(a.vload([0], "{activations}x4"), dtype="int32")
        c[T.ramp(T.int32(0), 1, {lanes})] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("{instruction}"),
            c.vload([0], "int32x{lanes}"),
            T.reinterpret(T.broadcast(group, {lanes}), dtype="{activations}x{width}"),
            b.vload([0, 0], "int8x{width}"),
            dtype="int32x{lanes}",
        )
"""


def has_intrinsic(kind: str, lanes: int) -> bool:
    """Whether there is an instruction for vectors of so many 32-bit lanes."""
    return (kind, lanes) in _INSTRUCTIONS


def intrinsic(kind: str, lanes: int) -> str:
    """The name under which `Schedule.tensorize` finds a dot product; made when first asked for.

    Raises:
        ScheduleError: the processor has no such instruction.
    """
    if not has_intrinsic(kind, lanes):
        raise ScheduleError(f"there is no dot product {kind or 'of bytes'} of {lanes} lanes")
    name = f"edgetlm.dot_{kind}_{lanes}"
    if TensorIntrin.get(name, allow_missing=True) is None:
        description, implementation = (_parsed(text, kind, lanes) for text in (_DESCRIPTION, _IMPLEMENTATION))
        TensorIntrin.register(name, description, implementation)
    return name


def _parsed(body: str, kind: str, lanes: int) -> Any:
    text = (_HEAD + body.lstrip("\n")).format(
        activations=_ACTIVATIONS[kind], instruction=_INSTRUCTIONS[kind, lanes], lanes=lanes, width=4 * lanes
    )
    return tvm.script.from_source(text, extra_vars={"T": tvm.script.tirx})
