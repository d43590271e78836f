"""Maxima of quantised tensors are those of their bytes.

    max(dequantize(x, s, z))                  = dequantize(max(x), s, z)    where s is above zero
    quantize(dequantize(x, s, z), s, z)       = x                           of the same type

The second holds since (x - z) s / s is off by less than a unit of its last digit, and is rounded.
"""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value
from host.lowering.rebuild import rebuild

_BYTES = ("int8", "uint8")


def pool_bytes(graph: Graph) -> Graph:
    """An equal graph whose maximum pooling reads quantised tensors as they are."""

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        pools = node.op == "pool" and node.attrs["kind"] == "max"
        found = _dequantised(builder, inputs[0]) if pools or node.op == "quantize" else None
        if found is None:
            return builder.copy(node, inputs)
        data, scale, zero = found
        if pools:
            pooled = builder.emit("pool", [data], node.attrs, [(node.output.shape, data.dtype)])[0]
            return builder.one("dequantize", [pooled, scale, zero], node.output.shape, node.output.dtype)
        same = data.dtype == node.output.dtype and _equal(scale, inputs[1]) and _equal(zero, inputs[2])
        return data if same else builder.copy(node, inputs)

    return rebuild(graph, rule)


def _dequantised(builder: Builder, value: Value) -> tuple[Value, Value, Value] | None:
    """Bytes, scale and zero point of a tensor that is dequantised as a whole, and perhaps transposed then.

    Scale and zero point are known, and the scale is above zero.
    """
    node = value.producer
    if node is None:
        return None
    if node.op == "transpose":
        found = _dequantised(builder, node.inputs[0])
        return found and (builder.transpose(found[0], node.attrs["axes"]), *found[1:])
    if node.op != "dequantize":
        return None
    data, scale, zero = node.inputs
    step = scale.scalar()
    known = step is not None and step > 0.0 and zero.scalar() is not None
    return (data, scale, zero) if known and data.dtype in _BYTES else None


def _equal(one: Value, other: Value) -> bool:
    number = one.scalar()
    return number is not None and number == other.scalar()
