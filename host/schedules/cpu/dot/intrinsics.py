"""Dot products as tensor intrinsics: C[L] += sum over G of A[G] B[L, G]."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.s_tir import TensorIntrin

from host.errors import ScheduleError
from host.lowering.types import BFLOAT16, dot_product
from host.tensor_ir.bfloat16 import dot_function

# Values of the decision `intrinsic`: plain code, or the instruction.
PLAIN, INSTRUCTION = 0, 1

# LLVM's intrinsic, or the name of our function, by the kind of dot product and 32-bit lanes. VPDPBUSD
# multiplies unsigned by signed bytes (Intel SDM), SDOT signed ones (Arm ARM, FEAT_DotProd). VPMADDWD
# multiplies signed numbers of 16 bits and adds two products; the sum is an addition of its own. None
# saturates with weights of bytes. VDPBF16PS multiplies numbers of bfloat16 and takes subnormal ones for zero
# (Intel SDM).
_INSTRUCTIONS = {
    ("u8s8", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("u8s8", 8): "llvm.x86.avx512.vpdpbusd.256",
    ("u8s8", 4): "llvm.x86.avx512.vpdpbusd.128",
    ("s8s8", 4): "llvm.aarch64.neon.sdot.v4i32.v16i8",
    ("s16s16", 16): "llvm.x86.avx512.pmaddw.d.512",
    ("s16s16", 8): "llvm.x86.avx2.pmadd.wd",
    ("s16s16", 4): "llvm.x86.sse2.pmadd.wd",
    **{(BFLOAT16, lanes): dot_function(lanes) for lanes in (4, 8, 16)},
}

# TVMScript, and not built by hand, because `tensorize` compares the description with a schedule's program.
_HEAD = """
@T.prim_func(s_tir=True, private=True)
def function(
    a: T.Buffer(({group},), "{activations}", offset_factor=1),
    b: T.Buffer(({lanes}, {group}), "{weights}", offset_factor=1),
    c: T.Buffer(({lanes},), "{sums}", scope="local", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:{lanes}], a[0:{group}], b[0:{lanes}, 0:{group}])
        T.writes(c[0:{lanes}])
"""
_DESCRIPTION = """
        for i in T.serial(0, {lanes}):
            for k in T.serial(0, {group}):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    c[vi] = c[vi] + T.cast(a[vk], "{sums}") * T.cast(b[vi, vk], "{sums}")
"""
# One group of activations goes to every lane: a load that broadcasts 32 bits.
_OF_BYTES = """
        group = T.reinterpret(a.vload([0], "{activations}x4"), dtype="int32")
        c[T.ramp(T.int32(0), 1, {lanes})] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("{instruction}"),
            c.vload([0], "int32x{lanes}"),
            T.reinterpret(T.broadcast(group, {lanes}), dtype="{activations}x{width}"),
            b.vload([0, 0], "int8x{width}"),
            dtype="int32x{lanes}",
        )
"""
# Weights are bytes in memory, which halves what comes from there, and are widened as they are loaded. LLVM
# loads some groups as integers into general registers; as floating-point numbers all are broadcast.
_OF_WIDENED = """
        group = T.reinterpret(a.vload([0], "{activations}x2"), dtype="float32")
        c[T.ramp(T.int32(0), 1, {lanes})] = c.vload([0], "int32x{lanes}") + T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("{instruction}"),
            T.reinterpret(T.broadcast(group, {lanes}), dtype="{activations}x{width}"),
            T.cast(b.vload([0, 0], "int8x{width}"), "int16x{width}"),
            dtype="int32x{lanes}",
        )
"""
# Both operands go to the function as 32-bit integers: see `host.tensor_ir.bfloat16`.
_OF_BFLOAT16 = """
        group = T.reinterpret(a.vload([0], "{activations}x2"), dtype="float32")
        c[T.ramp(T.int32(0), 1, {lanes})] = T.call_pure_extern(
            "float32x{lanes}",
            "{instruction}",
            c.vload([0], "float32x{lanes}"),
            T.reinterpret(T.broadcast(group, {lanes}), dtype="int32x{lanes}"),
            T.reinterpret(b.vload([0, 0], "{weights}x{width}"), dtype="int32x{lanes}"),
        )
"""
_IMPLEMENTATIONS = {"u8s8": _OF_BYTES, "s8s8": _OF_BYTES, "s16s16": _OF_WIDENED, BFLOAT16: _OF_BFLOAT16}


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
        texts = (_DESCRIPTION, _IMPLEMENTATIONS[kind])
        description, implementation = (_parsed(text, kind, lanes) for text in texts)
        TensorIntrin.register(name, description, implementation)
    return name


def _parsed(body: str, kind: str, lanes: int) -> Any:
    dot = dot_product(kind)
    text = (_HEAD + body.lstrip("\n")).format(
        activations=dot.activations,
        group=dot.group,
        weights=dot.weights,
        sums=dot.sums,
        instruction=_INSTRUCTIONS[kind, lanes],
        lanes=lanes,
        width=dot.group * lanes,
    )
    return tvm.script.from_source(text, extra_vars={"T": tvm.script.tirx})
