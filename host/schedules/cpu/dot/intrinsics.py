"""Dot products as tensor intrinsics: C[L] += sum over G of A[G] B[L, G], or of several such in turn."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.s_tir import TensorIntrin

from host.errors import ScheduleError
from host.lowering.types import BFLOAT16, dot_product
from host.tensor_ir.bfloat16 import dot_function

# Values of the decision `intrinsic`: plain code, the instruction of vectors, or registers of matrices.
PLAIN, INSTRUCTION, TILES = 0, 1, 2

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

# Groups of one vector of activations, of which the instruction takes any for all lanes (Arm ARM, SDOT by
# element). Other instructions load each group into all lanes.
_BY_ELEMENT = {"s8s8": 4}

# TVMScript, and not built by hand, because `tensorize` compares the description with a schedule's program.
_HEAD = """
@T.prim_func(s_tir=True, private=True)
def function(
    a: T.Buffer(({given},), "{activations}", offset_factor=1),
    b: T.Buffer(({stored}), "{weights}", offset_factor=1),
    c: T.Buffer(({lanes},), "{sums}", scope="local", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:{lanes}], a[0:{given}], b[{all}])
        T.writes(c[0:{lanes}])
"""
_DESCRIPTION = """
        for i in T.serial(0, {lanes}):
            for k in T.serial(0, {group}):
                with T.sblock("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    c[vi] = c[vi] + T.cast(a[vk], "{sums}") * T.cast(b[vi, vk], "{sums}")
"""
_DESCRIPTION_OF_STEPS = """
        for s in T.serial(0, {steps}):
            for i in T.serial(0, {lanes}):
                for k in T.serial(0, {group}):
                    with T.sblock("update"):
                        vi, vs, vk = T.axis.remap("SRR", [i, s, k])
                        c[vi] = c[vi] + T.cast(a[vs * {group} + vk], "{sums}") * T.cast(
                            b[vs, vi, vk], "{sums}"
                        )
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
# Step by step: LLVM makes a choice of one group for all lanes a part of the instruction.
_BY_STEPS = """
        groups = T.reinterpret(a.vload([0], "{activations}x{given}"), dtype="int32x{steps}")
"""
_STEP = """
        c[T.ramp(T.int32(0), 1, {lanes})] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("{instruction}"),
            c.vload([0], "int32x{lanes}"),
            b.vload([{step}, 0, 0], "int8x{width}"),
            T.reinterpret(T.Shuffle([{again}], [{chosen}]), dtype="{activations}x{width}"),
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


def steps_together(kind: str, steps: int) -> int:
    """How many of so many steps of a sum one vector of activations serves; 1 where each step loads its own.

    Args:
        kind: of the dot product.
        steps: that are written out.
    """
    return steps if 1 < steps <= _BY_ELEMENT.get(kind, 1) else 1


def intrinsic(kind: str, lanes: int, steps: int = 1) -> str:
    """The name under which `Schedule.tensorize` finds a dot product; made when first asked for.

    Args:
        kind: of the dot product.
        lanes: of the sums.
        steps: of the sum that follow one another, see `steps_together`.

    Raises:
        ScheduleError: the processor has no such instruction.
    """
    if not has_intrinsic(kind, lanes):
        raise ScheduleError(f"there is no dot product {kind or 'of bytes'} of {lanes} lanes")
    name = f"edgetlm.dot_{kind}_{lanes}" + (f"_steps_{steps}" if steps > 1 else "")
    if TensorIntrin.get(name, allow_missing=True) is None:
        if steps > 1:
            texts = (_DESCRIPTION_OF_STEPS, _step_by_step(lanes, steps))
        else:
            texts = (_DESCRIPTION, _IMPLEMENTATIONS[kind])
        description, implementation = (_parsed(text, kind, lanes, steps) for text in texts)
        TensorIntrin.register(name, description, implementation)
    return name


def _step_by_step(lanes: int, steps: int) -> str:
    """Text of several products, of which each takes another group of the same vector of activations."""
    parts = [_BY_STEPS]
    for step in range(steps):
        # TVM has no shuffle that is longer than what it takes from.
        chosen, again = ", ".join([str(step)] * lanes), ", ".join(["groups"] * (lanes // steps))
        text = _STEP.lstrip("\n").replace("{step}", str(step)).replace("{chosen}", chosen)
        parts.append(text.replace("{again}", again))
    return "".join(parts)


def _parsed(body: str, kind: str, lanes: int, steps: int) -> Any:
    dot = dot_product(kind)
    sizes = (steps, lanes, dot.group) if steps > 1 else (lanes, dot.group)
    text = (_HEAD + body.lstrip("\n")).format(
        activations=dot.activations,
        group=dot.group,
        weights=dot.weights,
        sums=dot.sums,
        instruction=_INSTRUCTIONS[kind, lanes],
        lanes=lanes,
        steps=steps,
        width=dot.group * lanes,
        given=steps * dot.group,
        stored=", ".join(map(str, sizes)),
        all=", ".join(f"0:{size}" for size in sizes),
    )
    return tvm.script.from_source(text, extra_vars={"T": tvm.script.tirx})
