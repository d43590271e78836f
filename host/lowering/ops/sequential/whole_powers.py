"""Powers of whole numbers: processors have none, and TVM's are of floats alone.

Inputs are bases (N) and exponents (N) of one integer type, and the output is like them. A product that has no
place in the type leaves its lowest bits, as in PyTorch. With a negative exponent, 1 and -1 are left of powers
of themselves, and nothing of other numbers. A step has the elements of a few vectors, which are squared for
each bit of the largest of their exponents. As an expression, every square would be written out twice in the
next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, broadcast_shape
from host.lowering.script import buffer_text, function_of_script, step_text
from host.lowering.spec import OpSpec
from host.lowering.types import numeric_type

OPERATION = "whole_power"
# Constant exponents up to this are products.
_FEW = 8
# Elements of a step, at most; its share of the bits that exponents usually have, over operations in vectors.
_MOST_TOGETHER, _SHARE_OF_BITS = 64, 8


def power_of_whole_numbers(builder: Builder, base: Value, exponent: Value) -> Value:
    """`base` to the `exponent`, which broadcast together and have one integer type."""
    shape, constant = broadcast_shape(base.shape, exponent.shape), exponent.scalar()
    if constant is not None and 1 <= constant <= _FEW and base.shape == shape:
        made = base
        for _ in range(int(constant) - 1):
            made = builder.binary("multiply", made, base)
        return made
    sides = []
    for value in (base, exponent):
        whole = value if value.shape == shape else builder.one("broadcast", [value], shape, value.dtype)
        sides.append(builder.reshape(whole, (prod(shape),)))
    return builder.reshape(builder.one(OPERATION, sides, (prod(shape),), base.dtype), shape)


def power_function(node: Node) -> tirx.PrimFunc:
    """The function of a "whole_power" node; arguments are its inputs and then its output."""
    return function_of_script(_text(node))


def _text(node: Node) -> str:
    """TVMScript of the function: the elements of a step lie side by side, and are made in vectors."""
    (base, exponent), dtype, count = node.inputs, node.output.dtype, node.output.size
    signed = dtype.startswith("int")
    bits = numeric_type(dtype).bytes * 8 - signed
    zero, one, minus = (f"T.{dtype}({number})" for number in (0, 1, -1))
    step = max(size for size in range(1, _MOST_TOGETHER + 1) if count % size == 0)
    at = f"vi * {step} + j"
    left, result = f"exponent[{at}]", "made[j]"
    if signed:
        of_minus = f"T.Select(T.bitwise_and({left}, {one}) == {zero}, {one}, {minus})"
        of_others = f"T.Select(base[{at}] == {one}, {one}, {zero})"
        below = f"T.Select(base[{at}] == {minus}, {of_minus}, {of_others})"
        left, result = f"T.max({left}, {zero})", f"T.Select({left} < {zero}, {below}, made[j])"
    own = f"vi * {step} : vi * {step} + {step}"
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    base: {buffer_text(base)}, exponent: {buffer_text(exponent)}, result: {buffer_text(node.output)},
) -> None:
    for i in range({count // step}):
        with T.sblock("powers"):
            vi = T.axis.spatial({count // step}, i)
            {step_text(bits / _SHARE_OF_BITS, "result")}
            T.reads(base[{own}], exponent[{own}])
            T.writes(result[{own}])
            made = T.sblock_alloc_buffer(({step},), "{dtype}", scope="local")
            square = T.sblock_alloc_buffer(({step},), "{dtype}", scope="local")
            left = T.sblock_alloc_buffer(({step},), "{dtype}", scope="local")
            # The bits that some exponent still has.
            rest = T.sblock_alloc_buffer((1,), "{dtype}", scope="local")
            rest[0] = {zero}
            for j in range({step}):
                made[j] = {one}
                square[j] = base[{at}]
                left[j] = {left}
                rest[0] = T.bitwise_or(rest[0], left[j])
            while rest[0] != {zero}:
                rest[0] = {zero}
                for j in range({step}):
                    made[j] = T.Select(T.bitwise_and(left[j], {one}) == {zero}, made[j], made[j] * square[j])
                    square[j] = square[j] * square[j]
                    left[j] = T.shift_right(left[j], {one})
                    rest[0] = T.bitwise_or(rest[0], left[j])
            for j in range({step}):
                result[{at}] = {result}
"""


def _folded(inputs: Sequence[np.ndarray], attrs: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """NumPy refuses negative exponents: they are left to the device."""
    base, exponent = inputs
    return None if (exponent < 0).any() else np.power(base, exponent)


SPECS: tuple[OpSpec, ...] = (OpSpec(OPERATION, function=power_function, fold=_folded),)
