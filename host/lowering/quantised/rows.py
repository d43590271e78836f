"""The function of rows of a quantised weight: an embedding that may share its weight with a product."""

from __future__ import annotations

from tvm import tirx

from host.lowering.graph import Node
from host.lowering.quantised.layout import GROUP, WeightLayout
from host.lowering.quantised.product import element_text
from host.lowering.script import function_of_script

ROWS = "rows"


def rows_function(node: Node) -> tirx.PrimFunc:
    """The function of a "packed_quantised_rows" node: numbers of rows, packed weight, scales, the result.

    A number out of range is taken for the nearest that is in it, so that nothing else is read.
    """
    layout: WeightLayout = node.attrs["layout"]
    [count], (panels, groups, lanes) = node.inputs[0].shape, node.inputs[2].shape
    width, steps = layout.width, layout.steps
    row = f"T.max(T.min(tokens[vt], {node.attrs['rows'] - 1}), 0)"
    element = element_text(layout, f"vk // {width}", f"{row} // {lanes}, vg|{row} % {lanes}, vk % {width}")
    number = f"T.cast(T.cast({element}, 'int32') - {layout.offset}, 'float32')"
    text = f"""
@T.prim_func(s_tir=True, private=True)
def function(
    tokens: T.Buffer(({count},), "int32"),
    weight: T.Buffer(({panels}, {groups}, {layout.vectors}, {lanes}, {width}), "{layout.stored}"),
    factors: T.Buffer(({panels}, {groups}, {lanes}), "float16"),
    output: T.Buffer(({count}, {groups * GROUP}), "float32"),
) -> None:
    for t, g, k in T.grid({count}, {groups}, {GROUP}):
        with T.sblock("{ROWS}"):
            vt, vg, vk = T.axis.remap("SSS", [t, g, k])
            output[vt, vg * {GROUP} + vk] = {number} * T.cast(
                factors[{row} // {lanes}, vg, {row} % {lanes}], "float32"
            )
"""
    assert steps * width == GROUP
    return function_of_script(text)
