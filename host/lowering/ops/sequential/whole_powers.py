"""Powers of whole numbers: processors have none, and TVM's are of floats alone.

Inputs are bases (N) and exponents (N) of one integer type, and the output is like them. A product that has no
place in the type leaves its lowest bits, as in PyTorch. With a negative exponent, 1 and -1 are left of powers
of themselves, and nothing of other numbers. An element is a step of its own: it is squared for each bit of
the exponent. As an expression, every square would be written out twice in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.graph import Node, Value, broadcast_shape
from host.lowering.script import buffer_text, function_of_script
from host.lowering.spec import OpSpec
from host.lowering.types import numeric_type

OPERATION = "whole_power"
# Constant exponents up to this are products.
_FEW = 8


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
    """TVMScript of the function."""
    (base, exponent), dtype = node.inputs, node.output.dtype
    signed = dtype.startswith("int")
    bits = numeric_type(dtype).bytes * 8 - signed
    zero, one, minus = (f"T.{dtype}({number})" for number in (0, 1, -1))
    result = "made[0]"
    if signed:
        of_minus = f"T.Select(T.bitwise_and(exponent[vi], {one}) == {zero}, {one}, {minus})"
        of_others = f"T.Select(base[vi] == {one}, {one}, {zero})"
        below = f"T.Select(base[vi] == {minus}, {of_minus}, {of_others})"
        result = f"T.Select(exponent[vi] < {zero}, {below}, made[0])"
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    base: {buffer_text(base)}, exponent: {buffer_text(exponent)}, result: {buffer_text(node.output)},
) -> None:
    for i in range({node.output.size}):
        with T.sblock("powers"):
            vi = T.axis.spatial({node.output.size}, i)
            T.reads(base[vi], exponent[vi])
            T.writes(result[vi])
            made = T.sblock_alloc_buffer((1,), "{dtype}", scope="local")
            square = T.sblock_alloc_buffer((1,), "{dtype}", scope="local")
            left = T.sblock_alloc_buffer((1,), "{dtype}", scope="local")
            made[0] = {one}
            square[0] = base[vi]
            left[0] = exponent[vi]
            for bit in range({bits}):
                made[0] = T.Select(T.bitwise_and(left[0], {one}) == {zero}, made[0], made[0] * square[0])
                square[0] = square[0] * square[0]
                left[0] = T.shift_right(left[0], {one})
            result[vi] = {result}
"""


def _folded(inputs: Sequence[np.ndarray], attrs: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """NumPy refuses negative exponents: they are left to the device."""
    base, exponent = inputs
    return None if (exponent < 0).any() else np.power(base, exponent)


SPECS: tuple[OpSpec, ...] = (OpSpec(OPERATION, function=power_function, fold=_folded),)
