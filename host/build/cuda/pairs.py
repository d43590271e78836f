"""Elementwise chains on halves in pairs: one instruction for two neighbours (`add.rn.f16x2` and the like).

A schedule computes neighbours one by one: it widens halves, computes in single precision and rounds once.
Where a chain rounds once in halves too, its pairs give the same bits or nearer ones, and there is nothing to
decide:

- The sum of two halves in single precision, rounded to a half, is the sum in halves: 24 bits are twice the
  11 of a half and two more (Figueroa, "When is double rounding innocuous?", 1995). Their product is exact.
- A product with a third half added is rounded once by `fma`. In single precision the sum is rounded before it
  becomes a half, so a half may differ in its last bit; that of `fma` is the nearer.
- Greatest and least of a half and a number that is rounded later may be taken after rounding, which keeps
  order.

Any other chain (a second sum, exponentials) stays in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.backend.cuda.op import cuda_func_call

from host.tensor_ir.structural import mapped

# PTX ISA 8.5, "Half Precision Floating Point Instructions": of pairs, greatest and least from sm_80 on, which
# are NaN where one of the halves is.
_ARITHMETIC = {tirx.Add: "add.rn", tirx.Sub: "sub.rn", tirx.Mul: "mul.rn"}
_ORDER = {tirx.Max: "max.NaN", tirx.Min: "min.NaN"}
_FIRST_ARCH_OF_ORDER = 80
_HEAD = "static __device__ __forceinline__"


def with_pairs(function: tirx.PrimFunc, arch: str) -> tirx.PrimFunc:
    """A scheduled function whose chains of halves are computed in pairs, where that gives the same results.

    Args:
        function: with its loops bound to blocks and threads, before it is lowered.
        arch: of the GPU, "sm_87".
    """
    ordered = int(arch.removeprefix("sm_")) >= _FIRST_ARCH_OF_ORDER
    found: list[tuple[tirx.For, tirx.Stmt]] = []

    def collect(loop: tirx.For) -> None:
        pairs = _in_pairs(loop, ordered)
        if pairs is not None:
            found.append((loop, pairs))

    # Maps are not nested: they would share what they know of each other's nodes.
    tvm_ffi.structural_walk(function.body, (tirx.For, collect), order="pre")
    if not found:
        return function

    def replaced(loop: tirx.For) -> tirx.Stmt:
        return next((pairs for old, pairs in found if loop.same_as(old)), loop)

    return function.with_body(mapped(function.body, (tirx.For, replaced)))


def _in_pairs(loop: tirx.For, ordered: bool) -> tirx.Stmt | None:
    """A loop over neighbours as one over pairs of them; None where it is not a chain that allows it."""
    if loop.kind != tirx.ForKind.UNROLLED or not isinstance(loop.extent, tirx.IntImm):
        return None
    realised = loop.body
    if int(loop.extent) % 2 or not isinstance(realised, s_tir.SBlockRealize):
        return None
    block = realised.block
    store = block.body
    if not isinstance(store, tirx.BufferStore) or block.init is not None or not block.iter_vars:
        return None
    if str(store.buffer.dtype) != "float16" or store.buffer.scope() != "local":
        return None
    last = block.iter_vars[-1].var
    if not store.indices or not store.indices[-1].same_as(last):
        return None
    if not _drives_the_last(loop, realised):
        return None
    chain = _Chain(last, ordered).of(store.value)
    if chain is None:
        return None
    pair = tirx.Var("pair", "int32")
    first = (tvm.ir.Var, lambda one: 2 * pair if one.same_as(loop.loop_var) else one)
    values = [mapped(value, first) for value in realised.iter_values]
    place = tirx.address_of(tirx.BufferLoad(store.buffer, list(store.indices)))
    body = tirx.Evaluate(cuda_func_call("edgetlm_store_pair", place, chain, source_code=_STORE))
    changed = s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, body, None, block.alloc_buffers
    )
    whole = s_tir.SBlockRealize(values, realised.predicate, changed)
    return tirx.For(pair, 0, int(loop.extent) // 2, tirx.ForKind.UNROLLED, whole)


def _drives_the_last(loop: tirx.For, realised: s_tir.SBlockRealize) -> bool:
    """Whether two steps of a loop are two neighbours, the first one at an even place.

    The loop may move nothing else, and no condition may part the two.
    """
    moving = loop.loop_var
    *others, last = realised.iter_values
    if any(_uses(one, moving) for one in (*others, realised.predicate)):
        return False
    analyser = tvm.sym.Analyzer()
    first = mapped(last, (tvm.ir.Var, lambda one: loop.min if one.same_as(moving) else one))
    zero = tirx.const(0, "int32")
    # A pair takes steps 2 * pair and 2 * pair + 1, which is every step of a loop from zero.
    return bool(
        analyser.can_prove_equal(loop.min, zero)
        and analyser.can_prove_equal(last, first + moving)
        and analyser.can_prove_equal(first % 2, zero)
    )


@dataclass(frozen=True)
class _Chain:
    """Translates the value of an element.

    Attributes:
        last: variable of the neighbours.
        ordered: whether the GPU takes the greatest and the least of pairs.
    """

    last: tirx.Var
    ordered: bool

    def of(self, value: Any) -> Any | None:
        """The pair of halves as a register, or None where the numbers could be others."""
        if not isinstance(value, tirx.Cast) or str(value.ty) != "float16":
            return None
        return self._rounded(value.value)

    def _rounded(self, value: Any) -> Any | None:
        """What is a half after one rounding."""
        kind = type(value)
        if kind in _ORDER and self.ordered:
            for one, other in ((value.a, value.b), (value.b, value.a)):
                half, rest = self._half(one), self._rounded(other)
                if half is not None and rest is not None:
                    return _call(_ORDER[kind], half, rest)
            return None
        if kind is tirx.Add:
            for product, other in ((value.a, value.b), (value.b, value.a)):
                if type(product) is tirx.Mul:
                    operands = [self._half(one) for one in (product.a, product.b, other)]
                    return None if None in operands else _call("fma.rn", *operands)
        if kind in _ARITHMETIC:
            operands = [self._half(one) for one in (value.a, value.b)]
            return None if None in operands else _call(_ARITHMETIC[kind], *operands)
        return self._half(value)

    def _half(self, value: Any) -> Any | None:
        """What is a half without rounding: one that is widened, not one that is made a whole number."""
        if str(value.ty) != "float32":
            return None
        if isinstance(value, tirx.Cast) and isinstance(value.value, tvm.ir.TensorLoad):
            load = value.value
            if str(load.ty) != "float16" or load.source.scope() != "local":
                return None
            return self._loaded(load)
        if isinstance(value, tirx.FloatImm):
            half = np.float16(value.value)
            number = int(half.view(np.uint16))
            return tirx.const(number << 16 | number, "uint32") if float(half) == value.value else None
        return None

    def _loaded(self, load: Any) -> Any | None:
        """Two neighbours, or one half twice."""
        indices = list(load.indices)
        moved = [bool(_uses(index, self.last)) for index in indices]
        if not any(moved):
            text = (
                f"{_HEAD} unsigned int edgetlm_twice(half value) {{\n"
                "  const unsigned int word = __half_as_ushort(value);\n  return word << 16 | word;\n}\n"
            )
            return cuda_func_call("edgetlm_twice", load, source_code=text, return_type="uint32")
        if any(moved[:-1]) or not indices[-1].same_as(self.last):
            return None
        place = tirx.address_of(load)
        return cuda_func_call("edgetlm_load_pair", place, source_code=_LOAD, return_type="uint32")


_STORE = f"""{_HEAD} void edgetlm_store_pair(void* place, unsigned int word) {{
  *static_cast<unsigned int*>(place) = word;
}}
"""
_LOAD = f"""{_HEAD} unsigned int edgetlm_load_pair(const void* place) {{
  return *static_cast<const unsigned int*>(place);
}}
"""
_NAMES: Mapping[int, str] = {2: "left, right", 3: "left, right, more"}


def _call(operation: str, *operands: Any) -> Any:
    """One instruction on pairs."""
    name = f"edgetlm_pairs_{operation.partition('.')[0]}"
    words = _NAMES[len(operands)].split(", ")
    given = ", ".join(f"unsigned int {word}" for word in words)
    places = ", ".join(f"%{number + 1}" for number in range(len(words)))
    inputs = ", ".join(f'"r"({word})' for word in words)
    text = f"""{_HEAD} unsigned int {name}({given}) {{
  unsigned int found;
  asm("{operation}.f16x2 %0, {places};\\n" : "=r"(found) : {inputs});
  return found;
}}
"""
    return cuda_func_call(name, *operands, source_code=text, return_type="uint32")


def _uses(index: Any, variable: tirx.Var) -> bool:
    return any(one.same_as(variable) for one in tirx.analysis.undefined_vars(index))
