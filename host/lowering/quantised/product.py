"""The function of a product with a quantised weight: (T, K) by (N, K) to (T, N).

Each group of a row of activations is rounded to 16 bits, by its largest absolute value, to 15 where products
have lanes of 16 bits, or to 12 where whole bytes are multiplied (`WeightLayout.joined`). Processors that
multiply bytes take them as two bytes. Most
products of a prefill are rounded to 8 bits on these, which are half as many multiplications; in all products,
logits of language models would move by 2% of the largest. A group of a product is summed in integers,
exactly, and multiplied by both scales. The numbers of a group of activations are summed once for all outputs:
times a zero point, the sum is taken off as an integer; times a minimum and the activations' scale, it is
added. The function is unscheduled: the rule `quantised` of the schedule families makes a program of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from host.lowering.graph import Node, Value
from host.lowering.quantised.groups import GroupTexts
from host.lowering.quantised.layout import WeightLayout
from host.lowering.script import function_of_script
from host.tensor_ir.tiles.lines import DEPTH, LANES

# Blocks that the rules know; the last one's name goes on with an activation.
LARGEST, SCALES, ROUNDED, SUMS, DOTS, TOTALS, OUTPUT, GATED = (
    "largest",
    "scales",
    "rounded",
    "group_sums",
    "group_dots",
    "totals",
    "output",
    "gated_",
)

# Type of rows that lie in memory as tiles, see `rows_of`; others are of single precision.
TILED = "bfloat16"

# 1.5 * 2^23, and its bits: of all processors, few round floats without a call of the C library.
_ROUNDING, _ROUNDING_BITS = 12582912.0, 0x4B400000


def product_function(node: Node) -> tirx.PrimFunc:
    """The function of a "packed_quantised_dense" node.

    With the attribute "first", it multiplies by the panels of the weight from that one on, as many as the
    result has. Parameters are rows, packed weight, packed scales, what `WeightLayout.further` names, and the
    result.
    """
    panels = node.output.shape[1] // GroupTexts.of(node).layout.lanes
    return _function(node, _text(node, panels) + _output_text(node))


def gated_product_function(node: Node, activation: Callable[[Any], Any]) -> tirx.PrimFunc:
    """The function of a "packed_gated_dense" node, of which `activation` is the one of its attributes.

    It is that of `product_function`, but gives activation(gate) * up, (T, N / 2): gate are the outputs of the
    first half of the panels, up those of the other one. The result is in tiles where its type says so.
    """
    texts = GroupTexts.of(node)
    return _function(node, _text(node, texts.panels) + _gated_text(node), activation=activation)


def _function(node: Node, text: str, **names: Any) -> tirx.PrimFunc:
    """The function of a text that calls what the numbers of this module need."""
    texts = GroupTexts.of(node)

    def magnitude(value: Any) -> Any:
        # Absolute values of floats are ordered as integers are, and LLVM takes maxima of those in any order.
        return tirx.reinterpret("int32", value) & tirx.const(0x7FFFFFFF, "int32")

    def as_float(value: Any) -> Any:
        return tirx.reinterpret("float32", value)

    def whole(value: Any, scale: Any) -> Any:
        scale = scale * tirx.const(16.0, "float32") if texts.layout.joined else scale
        # Where the scale is zero, so are the values.
        inverse = tirx.const(1.0, "float32") / tirx.max(scale, tirx.const(1e-30, "float32"))
        # Behind the point of so large a number there is no bit: the sum is rounded to a whole number.
        return tirx.reinterpret("int32", value * inverse + tirx.const(_ROUNDING, "float32")) - _ROUNDING_BITS

    def high(number: Any) -> Any:
        # Of the two bytes: the low one is from -128 to 127, or half as large.
        return (number + texts.layout.base // 2) >> (texts.layout.base.bit_length() - 1)

    used: dict[str, Any] = {"magnitude": magnitude, "as_float": as_float, "whole": whole, "high": high}
    return function_of_script(text, **(used | names))


def element_text(layout: WeightLayout, step: str, index: str, *, joined: bool = False) -> str:
    """Text of the stored element of a step: `index` is of panel and group, then of lane and place.

    With `joined`, that of a high half is the whole byte, see `WeightLayout.joined`.
    """
    first, last = index.split("|")
    if layout.bits == 8:
        return f"weight[{first}, {step}, {last}]"
    byte = f"weight[{first}, {step} // 2, {last}]"
    if layout.widens:
        left = f"T.Select({step} % 2 == 0, T.shift_left({byte}, T.uint8(4)), {byte})"
        return f"T.shift_right(T.cast({left}, 'int8'), T.int8(4))"
    if not layout.signed_high:
        return f"((T.shift_right({byte}, T.cast({step} % 2 * 4, 'uint8'))) & T.uint8(15))"
    low, high = f"T.cast({byte} & T.uint8(15), 'int8')", f"T.cast({byte}, 'int8')"
    high = high if joined else f"T.shift_right({high}, T.int8(4))"
    return f"T.Select({step} % 2 == 0, {low}, {high})"


def _total(texts: GroupTexts, panel: str) -> str:
    """Text of the products of a group as one integer; `panel` is that of the weight."""
    layout = texts.layout
    total = f"{DOTS}[vt, vp, vg, 0, vl]"
    if layout.planes == 2:
        total = f"{total} * {layout.base} + {DOTS}[vt, vp, vg, 1, vl]"
    if layout.sums_start:
        return total
    # What the offset of stored elements adds to the products of a group is taken off again.
    if zero := texts.zero(panel, "vg", "vl"):
        return f"({total} - {SUMS}[vt, vg] * ({zero} + {layout.offset}))"
    if layout.asymmetry and layout.offset:
        return f"({total} - {SUMS}[vt, vg] * {layout.offset})"
    return f"({total} - {SUMS}[vt, vg])" if layout.offset else f"({total})"


def _output_text(node: Node) -> str:
    """TVMScript of the result."""
    (rows, columns), lanes = node.output.shape, node.attrs["layout"].lanes
    return f"""    for t, p, l in T.grid({rows}, {columns // lanes}, {lanes}):
        with T.sblock("{OUTPUT}"):
            vt, vp, vl = T.axis.remap("SSS", [t, p, l])
            output[vt, vp * {lanes} + vl] = {TOTALS}[vt, vp, vl]
"""


def _gated_text(node: Node) -> str:
    """TVMScript of the result of gate and up."""
    rows, lanes = rows_of(node.output), node.attrs["layout"].lanes
    panels = node.output.size // rows // lanes
    made = f"activation({TOTALS}[vt, vp, vl]) * {TOTALS}[vt, vp + {panels}, vl]"
    place = f"vt, vp * {lanes} + vl"
    if node.output.dtype == TILED:
        place, made = _tile_place(f"vp * {lanes} + vl"), f'T.cast({made}, "{TILED}")'
    return f"""    for t, p, l in T.grid({rows}, {panels}, {lanes}):
        with T.sblock("{GATED}{node.attrs["activation"]}"):
            vt, vp, vl = T.axis.remap("SSS", [t, p, l])
            output[{place}] = {made}
"""


def rows_of(value: Value) -> int:
    """Rows of what a product multiplies, or gives: (T, K), or tiles (T / 16, K / 32, 16, 32) of bfloat16."""
    return value.shape[0] * (LANES if value.dtype == TILED else 1)


def _data_text(node: Node, column: str) -> str:
    """Text of an element of the rows, in single precision."""
    if node.inputs[0].dtype == TILED:
        return f'T.cast(data[{_tile_place(column)}], "float32")'
    return f"data[vt, {column}]"


def _tile_place(column: str) -> str:
    return f"vt // {LANES}, ({column}) // {DEPTH}, vt % {LANES}, ({column}) % {DEPTH}"


def _text(node: Node, panels: int) -> str:
    """TVMScript of the function up to its sums, which are those of so many panels of the weight."""
    texts, first, rows = GroupTexts.of(node), node.attrs.get("first", 0), rows_of(node.inputs[0])
    layout, groups, group = texts.layout, texts.groups, texts.layout.group
    assert groups * group * rows == node.inputs[0].size, "a weight of whole groups"
    panel = f"vp + {first}" if first else "vp"
    lanes, width, steps, planes = layout.lanes, layout.width, layout.steps, layout.planes
    element = element_text(layout, "vq", f"{panel}, vg|vl, vj", joined=layout.joined)
    inner, order = ((steps, planes), "vq, ve") if layout.planes_together else ((planes, steps), "ve, vq")
    rounded = f"{ROUNDED}[vt, vg, {order}, vj]"
    packed = f"({texts.panels}, {groups}, {layout.vectors}, {lanes}, {width})"
    product = f"T.cast({element}, 'int32') * T.cast({rounded}, 'int32')"
    minimum = texts.minimum(panel, "vg", "vl")
    added = f' + T.cast({SUMS}[vt, vg], "float32") * {SCALES}[vt, vg] * ({minimum})' if minimum else ""
    whole = f"whole({_data_text(node, f'(vg * {steps} + vq) * {width} + vj')}, {SCALES}[vt, vg])"
    if layout.joined:
        other = _data_text(node, f"(vg * {steps} + vq // 2 * 2 + 1) * {width} + vj")
        high = f"whole({other}, {SCALES}[vt, vg])"
        # A product by 16 would be taken apart, and leave 32 bits.
        whole = f"T.Select(vq % 2 == 0, T.shift_left({whole}, 4) - {high}, {high})"
    plane = (
        f"T.Select(ve == 0, high({whole}), {whole} - high({whole}) * {layout.base})" if planes == 2 else whole
    )
    weighed = f"T.cast({rounded}, 'int32')"
    weighed = f"T.Select(ve == 0, {layout.base if planes == 2 else 1}, 1) * {weighed}"
    # Of symmetric weights, the offset is the same for all groups; of others, sums are plain.
    offset = -layout.offset if layout.sums_start else layout.offset
    weighed = weighed if layout.asymmetry else f"{offset} * {weighed}"
    if layout.signed_high and not layout.joined:
        weighed = f"T.Select(vq % 2 == 0, {weighed}, 0)"
    # Products of joined bytes are 16 times too large.
    unit = 1.0 / layout.largest / (16 if layout.joined else 1)
    start = f"{SUMS}[vt, vg]" if layout.sums_start else "T.int32(0)"
    # The second plane counts as it is.
    start = f"T.Select(ve == 1, {start}, T.int32(0))" if layout.sums_start and planes == 2 else start
    return f"""
@T.prim_func(s_tir=True, private=True)
def function(
    data: T.Buffer({node.inputs[0].shape}, "{node.inputs[0].dtype}"),
    weight: T.Buffer({packed}, "{layout.stored}"),
{texts.parameters}    output: T.Buffer({node.output.shape}, "{node.output.dtype}"),
) -> None:
    {LARGEST} = T.sblock_alloc_buffer(({rows}, {groups}), "int32")
    {SCALES} = T.sblock_alloc_buffer(({rows}, {groups}), "float32")
    {ROUNDED} = T.sblock_alloc_buffer(
        ({rows}, {groups}, {inner[0]}, {inner[1]}, {width}), "{layout.activations}"
    )
    {SUMS} = T.sblock_alloc_buffer(({rows}, {groups}), "int32")
    {DOTS} = T.sblock_alloc_buffer(({rows}, {panels}, {groups}, {planes}, {lanes}), "int32")
    {TOTALS} = T.sblock_alloc_buffer(({rows}, {panels}, {lanes}), "float32")
    for t, g, k in T.grid({rows}, {groups}, {group}):
        with T.sblock("{LARGEST}"):
            vt, vg, vk = T.axis.remap("SSR", [t, g, k])
            with T.init():
                {LARGEST}[vt, vg] = T.int32(0)
            {LARGEST}[vt, vg] = T.max({LARGEST}[vt, vg], magnitude({_data_text(node, f"vg * {group} + vk")}))
    for t, g in T.grid({rows}, {groups}):
        with T.sblock("{SCALES}"):
            vt, vg = T.axis.remap("SS", [t, g])
            {SCALES}[vt, vg] = as_float({LARGEST}[vt, vg]) * T.float32({unit!r})
    for t, g, e, q, j in T.grid({rows}, {groups}, {planes}, {steps}, {width}):
        with T.sblock("{ROUNDED}"):
            vt, vg, ve, vq, vj = T.axis.remap("SSSSS", [t, g, e, q, j])
            {rounded} = T.cast({plane}, "{layout.activations}")
    for t, g, e, q, j in T.grid({rows}, {groups}, {planes}, {steps}, {width}):
        with T.sblock("{SUMS}"):
            vt, vg, ve, vq, vj = T.axis.remap("SSRRR", [t, g, e, q, j])
            with T.init():
                {SUMS}[vt, vg] = T.int32(0)
            {SUMS}[vt, vg] = {SUMS}[vt, vg] + {weighed}
    for t, p, g, e, q, l, j in T.grid({rows}, {panels}, {groups}, {planes}, {steps}, {lanes}, {width}):
        with T.sblock("{DOTS}"):
            vt, vp, vg, ve, vq, vl, vj = T.axis.remap("SSSSRSR", [t, p, g, e, q, l, j])
            with T.init():
                {DOTS}[vt, vp, vg, ve, vl] = {start}
            {DOTS}[vt, vp, vg, ve, vl] = {DOTS}[vt, vp, vg, ve, vl] + {product}
    for t, p, l, g in T.grid({rows}, {panels}, {lanes}, {groups}):
        with T.sblock("{TOTALS}"):
            vt, vp, vl, vg = T.axis.remap("SSSR", [t, p, l, g])
            with T.init():
                {TOTALS}[vt, vp, vl] = T.float32(0)
            {TOTALS}[vt, vp, vl] = {TOTALS}[vt, vp, vl] + T.cast({_total(texts, panel)}, "float32") * (
                {SCALES}[vt, vg] * {texts.scale(panel, "vg", "vl")}
            ){added}
"""
