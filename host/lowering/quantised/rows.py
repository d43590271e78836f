"""The function of rows of a quantised weight: an embedding that may share its weight with a product."""

from __future__ import annotations

from tvm import tirx

from host.lowering.graph import Node
from host.lowering.quantised.groups import GroupTexts
from host.lowering.quantised.product import element_text
from host.lowering.script import function_of_script

ROWS = "rows"


def rows_function(node: Node) -> tirx.PrimFunc:
    """The function of a "packed_quantised_rows" node: numbers of rows, then as of `product_function`.

    A number out of range is taken for the nearest that is in it, so that nothing else is read.
    """
    texts, [count] = GroupTexts.of(node), node.inputs[0].shape
    layout, panels, groups = texts.layout, texts.panels, texts.groups
    lanes, width, group = layout.lanes, layout.width, layout.group
    row = f"T.max(T.min(tokens[vt], {node.attrs['rows'] - 1}), 0)"
    element = element_text(layout, f"vk // {width}", f"{row} // {lanes}, vg|{row} % {lanes}, vk % {width}")
    place = (f"{row} // {lanes}", "vg", f"{row} % {lanes}")
    zero, minimum = texts.zero(*place), texts.minimum(*place)
    offset = f"T.Select(vk // {width} % 2 == 0, {layout.offset}, 0)" if layout.signed_high else layout.offset
    less = f"{offset}{f' - {zero}' if zero else ''}"
    number = f"T.cast(T.cast({element}, 'int32') - {less}, 'float32')"
    value = f"{number} * ({texts.scale(*place)}){f' + {minimum}' if minimum else ''}"
    text = f"""
@T.prim_func(s_tir=True, private=True)
def function(
    tokens: T.Buffer(({count},), "int32"),
    weight: T.Buffer(({panels}, {groups}, {layout.vectors}, {lanes}, {width}), "{layout.stored}"),
{texts.parameters}    output: T.Buffer(({count}, {groups * group}), "float32"),
) -> None:
    for t, g, k in T.grid({count}, {groups}, {group}):
        with T.sblock("{ROWS}"):
            vt, vg, vk = T.axis.remap("SSS", [t, g, k])
            output[vt, vg * {group} + vk] = {value}
"""
    return function_of_script(text)
