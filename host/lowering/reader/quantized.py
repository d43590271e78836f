"""Readers of quantisation and its inverse."""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Value, normalise_axis
from host.lowering.reader.call import OperatorCall, Reader

_SHORT = ("int8", "uint8", "int16", "uint16")
_INTEGERS = {"quantize": _SHORT, "dequantize": (*_SHORT, "int32")}


def is_quantized_constant(value: Value) -> bool:
    """Whether a value is a dequantised constant, perhaps transposed or reshaped.

    Such values are not folded while the model is read: weights keep their integers.
    """
    node = value.producer
    if node is None:
        return False
    if node.op in ("transpose", "reshape"):
        return is_quantized_constant(node.inputs[0])
    return node.op == "dequantize" and all(part.is_constant for part in node.inputs)


def _per_axis(builder: Builder, value: Value, call: OperatorCall) -> Value:
    """A scale or zero point in a shape that broadcasts to the tensor."""
    rank = len(call.shape)
    if value.size == 1:
        return builder.reshape(value, ())
    axis = normalise_axis(int(call.attrs.axis), rank)
    return builder.reshape(value, tuple(value.size if i == axis else 1 for i in range(rank)))


def _along_axis(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value | None:
        data, scale, zero = call.value(0), call.value(1), call.value(2)
        source, made = (call.dtype, data.dtype) if name == "dequantize" else (data.dtype, call.dtype)
        if (source, scale.dtype) != ("float32", "float32") or made not in _INTEGERS[name]:
            return None
        parameters = [_per_axis(builder, value, call) for value in (scale, zero)]
        return builder.one(name, [data, *parameters], call.shape, call.dtype)

    return read


READERS: dict[str, Reader] = {name: _along_axis(name) for name in ("quantize", "dequantize")}
