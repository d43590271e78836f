"""Values of ONNX nodes that follow from constants or from shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, ValueInfoProto, helper

STANDARD = ("", "ai.onnx")

# A folded constant may have this many elements; larger ones stay operators and cost no space in the bundle.
FOLD_ELEMENTS = 1 << 16

# Of weights that stay integers.
_INTEGERS = {"int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32"}
_RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
}


def value_types(graph: onnx.GraphProto) -> dict[str, ValueInfoProto]:
    """Declared or inferred type of each value of a graph, by name."""
    return {value.name: value for value in [*graph.value_info, *graph.input, *graph.output]}


def static_shape(value: ValueInfoProto | None) -> tuple[int, ...] | None:
    """The shape of a value if all of it is known."""
    if value is None or not value.type.tensor_type.HasField("shape"):
        return None
    dimensions = value.type.tensor_type.shape.dim
    if not all(dimension.HasField("dim_value") for dimension in dimensions):
        return None
    return tuple(dimension.dim_value for dimension in dimensions)


def evaluate(
    node: NodeProto,
    opsets: Mapping[str, int],
    types: Mapping[str, ValueInfoProto],
    value: Callable[[str], np.ndarray | None],
) -> dict[str, np.ndarray] | None:
    """Values of a node's outputs if they are known and small, else None.

    Dequantised weights are left as they are: products are computed with their integers
    (`host.lowering.passes.integers.use_integers`).

    Args:
        node: any node.
        opsets: version by domain.
        types: types of the graph's values, by name.
        value: gives the value of a name if it is constant.
    """
    if node.domain not in STANDARD or node.op_type in _RANDOM or _keeps_integers(node, value):
        return None
    if node.op_type in ("Shape", "Size"):
        known = value(node.input[0])  # constants have no entry among the types
        return _fold_shape(node, static_shape(types.get(node.input[0])) if known is None else known.shape)
    if any(attribute.type in (attribute.GRAPH, attribute.GRAPHS) for attribute in node.attribute):
        return None
    feeds = {name: value(name) for name in node.input if name}
    if any(array is None for array in feeds.values()) or not _small_outputs(node, types):
        return None
    if made_elements(node.op_type, [feeds.get(name) for name in node.input]) > FOLD_ELEMENTS:
        return None
    # It brings an implementation of each operator, which takes as long to load as a small model to read.
    from onnx.reference import ReferenceEvaluator

    try:
        results = ReferenceEvaluator(_as_graph(node, opsets, feeds)).run(None, feeds)
    except Exception:  # noqa: BLE001 - whatever the evaluator cannot do stays in the graph
        return None
    if any(not isinstance(result, np.ndarray | np.generic) for result in results):
        return None
    arrays = [np.asarray(result) for result in results]
    if any(array.size > FOLD_ELEMENTS or array.dtype.kind not in "fiubV" for array in arrays):
        return None
    return dict(zip((name for name in node.output if name), arrays, strict=True))


def _keeps_integers(node: NodeProto, value: Callable[[str], np.ndarray | None]) -> bool:
    """Whether a node dequantises whole numbers that the compiler has a type for, along an axis at most.

    A single number is none of a product's: it may be a bound, or what an image is padded with.
    """
    blocked = any(one.name == "block_size" and one.i for one in node.attribute)
    if node.op_type != "DequantizeLinear" or blocked or not node.input:
        return False
    whole = value(node.input[0])
    return whole is not None and whole.size > 1 and whole.dtype.name in _INTEGERS


def made_elements(operator: str, inputs: Sequence[np.ndarray | None]) -> float:
    """How many elements an operator makes if the values of its inputs determine this; 0 for others.

    The inference of shapes does not know all of them, and a few bytes of input may ask for terabytes.
    """
    values = [np.zeros(0) if array is None else array.astype(np.float64).reshape(-1) for array in inputs]
    sizes = [float(value.size) for value in values]
    if operator == "ConstantOfShape":
        return float(np.prod(np.abs(values[0])))
    if operator in ("Expand", "Tile") and len(values) > 1:
        return sizes[0] * float(np.prod(np.maximum(np.abs(values[1]), 1)))
    if operator == "Range" and len(values) > 2 and all(sizes[:3]) and values[2][0]:
        return float((values[1][0] - values[0][0]) / values[2][0])
    if operator == "OneHot" and len(values) > 1:
        return sizes[0] * float(np.max(np.abs(values[1]), initial=0))
    if operator == "Pad" and len(values) > 1:
        return sizes[0] + float(np.prod(1 + np.abs(values[1])))
    if operator in ("Resize", "Upsample") and len(values) > 1:
        scaled = max((float(np.prod(np.abs(value))) for value in values[1:3]), default=1.0)
        wanted = float(np.prod(np.abs(values[3]))) if len(values) > 3 and sizes[3] else 0.0
        return max(sizes[0] * scaled, wanted)
    if operator in ("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"):
        return max((float(np.max(np.abs(value), initial=0)) for value in values), default=0.0)
    return 0.0


def _as_graph(
    node: NodeProto, opsets: Mapping[str, int], feeds: Mapping[str, np.ndarray | None]
) -> onnx.ModelProto:
    inputs = [onnx.ValueInfoProto(name=name) for name in feeds]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "constant", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports)


def _fold_shape(node: NodeProto, shape: tuple[int, ...] | None) -> dict[str, np.ndarray] | None:
    if shape is None:
        return None
    if node.op_type == "Size":
        return {node.output[0]: np.array(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)}
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return {node.output[0]: np.array(shape[bounds.get("start", 0) : bounds.get("end")], dtype=np.int64)}


def _small_outputs(node: NodeProto, types: Mapping[str, ValueInfoProto]) -> bool:
    """Whether the outputs are known to be small, or nothing is known of them (they are checked after)."""
    for name in node.output:
        shape = static_shape(types.get(name))
        if shape is not None and np.prod(shape, dtype=np.int64) > FOLD_ELEMENTS:
            return False
    return True
