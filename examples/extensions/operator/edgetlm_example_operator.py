"""An operator: LiSHT, x tanh(x), which a model has as two operations.

Recognised, they are one: an elementwise operation, which shares a function with what stands before and behind
it.
"""

from __future__ import annotations

from sdk.compiler import Builder, Node, Value, elementwise, formulas


def _of_parts(builder: Builder, node: Node) -> Value | None:
    """The operation in place of the product that ends it; the formula is for fp32 alone."""
    if node.op != "multiply" or node.output.dtype != "float32":
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        if gate.producer is not None and gate.producer.op == "tanh" and gate.producer.inputs[0] is x:
            return builder.unary("lisht", x)
    return None


LISHT = elementwise(
    "lisht",
    lambda arguments, attributes, dtype: formulas.bind(arguments[0], lambda x: x * formulas.tanh(x)),
    read={},
    recognise=(_of_parts,),
)
