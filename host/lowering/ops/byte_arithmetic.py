"""Sums and products of quantised tensors, made by the pass `join_bytes`, and tables, by `tabulate_bytes`.

A table has the 256 bytes that a function of one byte gives, by the bits of that byte: one with sign is read
as one without. The pass `join_bytes` runs before that of `contraction.integer`, which folds dequantised
constants: passes of one phase run in the order of the modules' names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.graph import Node
from host.lowering.ops.elementwise.quantization import float_difference, rounded
from host.lowering.ops.forms import elementwise
from host.lowering.passes.integers.join_bytes import SIGN, join_bytes
from host.lowering.passes.integers.tabulate_bytes import BYTE_TABLE, tabulate_bytes
from host.lowering.spec import GraphPass, Kind, OpSpec, Phase


def _add(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    """A * ratio_a + (b * ratio_b + offset), with the zero points in the offset."""
    first, second, ratio_first, ratio_second, offset = args
    sign = tirx.const(-SIGN if dtype == "int8" else 0, "int32")
    last = float_difference(second, sign) * ratio_second + offset
    return _signed_as(rounded(float_difference(first, sign) * ratio_first + last, "uint8"), dtype)


def _multiply(args: Sequence[Expression], attrs: Any, dtype: str) -> Expression:
    """(a - za) (b - zb) * ratio + zero, the product exact in int32."""
    first, second, zero_first, zero_second, ratio, zero = args
    product = (_unsigned(first, dtype) - zero_first) * (_unsigned(second, dtype) - zero_second)
    return _signed_as(rounded(product.astype("float32") * ratio, "uint8", zero), dtype)


def _unsigned(value: Expression, dtype: str) -> Expression:
    """A byte of that type as one between 0 and 255, in int32."""
    wide = value.astype("int32")
    return wide + tirx.const(SIGN, "int32") if dtype == "int8" else wide


def _signed_as(value: Expression, dtype: str) -> Expression:
    """A result without sign as the type that the model has."""
    if dtype == "uint8":
        return value
    return (value.astype("int32") - tirx.const(SIGN, "int32")).astype(dtype)


def _look_up(stage: Stage, node: Node) -> None:
    data, table = node.inputs

    def element(indices: Indices) -> Expression:
        index = stage.element(data, indices)
        without_sign = index if data.dtype == "uint8" else index.astype("uint8")
        return load(stage.argument(table), [tirx.Cast("int32", without_sign)])

    stage.define(node.output, element)


SPECS: tuple[OpSpec, ...] = (
    replace(
        elementwise("add_bytes", _add, read={}),
        passes=(GraphPass(Phase.READ, lambda graph, hardware: join_bytes(graph)),),
    ),
    elementwise("multiply_bytes", _multiply, read={}),
    # Made when layouts are chosen: from there on an elementwise operation may have an input that is not
    # broadcast.
    OpSpec(
        BYTE_TABLE,
        Kind.ELEMENTWISE,
        write=_look_up,
        passes=(GraphPass(Phase.SIMPLIFIED, tabulate_bytes),),
    ),
)
