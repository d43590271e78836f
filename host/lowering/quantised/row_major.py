"""Quantised weights of GPUs: rows as they are imported, and the functions that compute with them.

A weight (N, K) is (N, K / 2) uint8 with the element of the even column in the low half, or (N, K) int8;
scales and the others of `WeightLayout.further` are (N, blocks) or (N, groups). So the 16 bytes that a thread
loads are of one row, mostly of one group. See `layout` for the values.

The function of a product is a stage of values in half precision, which tensor cores take, and the sums over
them. Rules that compute with the numbers themselves find the form of the weight at the stage of values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvm import tirx

from host.lowering.graph import Node
from host.lowering.quantised.layout import HALF_OFFSET, MINIMUM, ZERO, WeightLayout
from host.lowering.script import function_of_script

# Blocks that rules know, and the annotation of the first one: a form as JSON.
VALUES, PRODUCT, FORM = "values", "product", "edgetlm.form"


@dataclass(frozen=True)
class RowForm:
    """The form of one weight.

    Attributes:
        bits: of an element, 4 or 8.
        group: elements of a group, and of a block of groups that has a scale.
        block: see `group`.
        asymmetry: see `WeightLayout`.
        multiplied: see `WeightLayout`.
        scales: type of the scales.
    """

    bits: int
    group: int
    block: int
    asymmetry: str
    multiplied: bool
    scales: str

    @classmethod
    def of(cls, attrs: Mapping[str, Any], depth: int, scales: Any) -> RowForm:
        """Of the attributes of a node, the inputs of its weight, and an array of scales."""
        bits, group, asymmetry = attrs["bits"], attrs["group"], attrs.get("asymmetry", "")
        block = depth // scales.shape[1]
        return cls(bits, group, block, asymmetry, attrs.get("multiplied", False), str(scales.dtype))

    @property
    def offset(self) -> int:
        """What stored elements are more than their numbers."""
        return HALF_OFFSET if self.bits == 4 and not self.asymmetry else 0

    @property
    def further(self) -> tuple[str, ...]:
        """What a function gets behind the weight and its scales, in this order."""
        return WeightLayout(self.bits, 1, "plain", self.group, self.asymmetry, self.multiplied).further

    def number(self, row: str, column: str) -> str:
        """Text of a stored element, int32."""
        if self.bits == 8:
            return f"T.cast(weight[{row}, {column}], 'int32')"
        half = f"T.shift_right(weight[{row}, {column} // 2], T.cast({column} % 2 * 4, 'uint8'))"
        return f"T.cast(T.bitwise_and({half}, T.uint8(15)), 'int32')"

    def scale(self, row: str, column: str) -> str:
        """Text of what stored elements are multiplied with, float32."""
        return self._scaled("factors", "multipliers", row, column)

    def shift(self, row: str, column: str) -> str:
        """Text of what is added to their products, float32."""
        if self.asymmetry == MINIMUM:
            return self._scaled("minima", "minimum_multipliers", row, column)
        if self.asymmetry == ZERO:
            zero = f"T.cast(zeros[{row}, {column} // {self.block}], 'float32')"
            return f"-({zero} * {self.scale(row, column)})"
        return f"{-float(self.offset)!r} * ({self.scale(row, column)})" if self.offset else "T.float32(0)"

    def _scaled(self, scales: str, multipliers: str, row: str, column: str) -> str:
        made = f"T.cast({scales}[{row}, {column} // {self.block}], 'float32')"
        if not self.multiplied:
            return made
        return f"{made} * T.cast({multipliers}[{row}, {column} // {self.group}], 'float32')"

    def value(self, row: str, column: str) -> str:
        """Text of a value, float32. Zero points are taken off whole numbers, so that the rest is exact."""
        number = self.number(row, column)
        if self.asymmetry == ZERO:
            number = f"({number} - T.cast(zeros[{row}, {column} // {self.block}], 'int32'))"
        elif self.offset:
            number = f"({number} - {self.offset})"
        made = f"T.cast({number}, 'float32') * ({self.scale(row, column)})"
        return f"{made} + {self.shift(row, column)}" if self.asymmetry == MINIMUM else made

    def parameters(self, rows: int, depth: int) -> str:
        """Text of the parameters of a weight of so many rows and columns."""
        stored = f'({rows}, {depth // 2}), "uint8"' if self.bits == 4 else f'({rows}, {depth}), "int8"'
        groups, blocks = depth // self.group, depth // self.block
        kinds = {"multipliers": (groups, "int8"), "zeros": (blocks, "int8"), "minima": (blocks, "float16")}
        kinds |= {"minimum_multipliers": (groups, "int8"), "factors": (blocks, self.scales)}
        return f"    weight: T.Buffer({stored}),\n" + "".join(
            f'    {name}: T.Buffer(({rows}, {kinds[name][0]}), "{kinds[name][1]}"),\n'
            for name in ("factors", *self.further)
        )


def row_product_function(node: Node) -> tirx.PrimFunc:
    """The function of a "row_quantised_dense" node: rows (T, K), the weight, the result (T, N)."""
    form: RowForm = node.attrs["form"]
    (count, depth), columns = node.inputs[0].shape, node.output.shape[1]
    stated = json.dumps(asdict(form), sort_keys=True)
    return function_of_script(f"""
@T.prim_func(s_tir=True, private=True)
def function(
    data: T.Buffer(({count}, {depth}), "float32"),
{form.parameters(columns, depth)}    output: T.Buffer(({count}, {columns}), "float32"),
) -> None:
    {VALUES} = T.sblock_alloc_buffer(({columns}, {depth}), "float16")
    for n, k in T.grid({columns}, {depth}):
        with T.sblock("{VALUES}"):
            vn, vk = T.axis.remap("SS", [n, k])
            T.sblock_attr({{"{FORM}": {stated!r}}})
            {VALUES}[vn, vk] = T.cast({form.value("vn", "vk")}, "float16")
    for t, n, k in T.grid({count}, {columns}, {depth}):
        with T.sblock("{PRODUCT}"):
            vt, vn, vk = T.axis.remap("SSR", [t, n, k])
            with T.init():
                output[vt, vn] = T.float32(0)
            output[vt, vn] = output[vt, vn] + data[vt, vk] * T.cast({VALUES}[vn, vk], "float32")
""")


def row_rows_function(node: Node) -> tirx.PrimFunc:
    """The function of a "row_quantised_rows" node: numbers of rows, the weight, the rows.

    A number out of range is taken for the nearest that is in it, so that nothing else is read.
    """
    form: RowForm = node.attrs["form"]
    (count, depth), rows = node.output.shape, node.inputs[1].shape[0]
    return function_of_script(f"""
@T.prim_func(s_tir=True, private=True)
def function(
    tokens: T.Buffer(({count},), "int32"),
{form.parameters(rows, depth)}    output: T.Buffer(({count}, {depth}), "float32"),
) -> None:
    for t, k in T.grid({count}, {depth}):
        with T.sblock("rows"):
            vt, vk = T.axis.remap("SS", [t, k])
            output[vt, vk] = {form.value(f"T.max(T.min(tokens[vt], {rows - 1}), 0)", "vk")}
""")
