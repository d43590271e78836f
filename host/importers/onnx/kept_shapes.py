"""Shapes of inner values, from what a model declares of its outputs.

Inference goes forwards. Where values decide a shape (a reduction whose axes are an input) it stops, though
the output behind may have a declared shape; through operators that keep shapes that one is known as well.
"""

from __future__ import annotations

import onnx

from host.importers.onnx.evaluate import STANDARD, static_shape, value_types

# Their output has the shape of their first input. Others of the kind have two inputs that broadcast.
_KEEPING = frozenset(
    (
        "Abs",
        "Cast",
        "CastLike",
        "Ceil",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Identity",
        "LeakyRelu",
        "Log",
        "Neg",
        "Not",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sign",
        "Softmax",
        "Softplus",
        "Sqrt",
        "Tanh",
    )
)


def spread_back(graph: onnx.GraphProto) -> None:
    """Set the shape of values of known type and unknown shape, from what is computed of them."""
    types = value_types(graph)
    for node in reversed(graph.node):
        if node.domain not in STANDARD or node.op_type not in _KEEPING:
            continue
        source, shape = types.get(node.input[0]), static_shape(types.get(node.output[0]))
        if source is None or shape is None or static_shape(source) is not None:
            continue
        kind = source.type.tensor_type
        if not kind.elem_type:
            continue
        kind.ClearField("shape")
        kind.shape.SetInParent()
        for size in shape:
            kind.shape.dim.add().dim_value = size
