"""The graph of a quantised model: its layers, and the same model with only some of them quantised.

ONNX Runtime's quantiser writes every layer with a pair of QuantizeLinear and DequantizeLinear behind each
tensor that a layer reads or makes. Which layers stay in floats is tried many times, and running the quantiser
for each would take minutes: here, the pairs that nothing quantised needs are taken out again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import onnx
from onnx import NodeProto, TensorProto

# Products with constant weights: what is computed in integers.
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Of these, engines compute in integers only where the output is quantised too. A product of matrices gives
# floats behind its sums as well, which lose less.
_WITH_OUTPUT = ("Conv", "ConvTranspose")
# The pair stands behind what bounds a product: its range is that of the bounded values.
ACTIVATIONS = ("Relu", "Clip")
# Bytes go through these as they are.
PASSED = ("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten")

# What names of weights in floats end in, beside their quantised form.
_FLOATS = "_in_floats"


@dataclass(frozen=True)
class Layer:
    """A product with constant weights.

    Attributes:
        name: of its node.
        operator: of its node.
        inputs: names of its inputs in the model in floats.
        multiply_adds: of one run.
        weights: number of them.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    multiply_adds: int
    weights: int


def name_nodes(model: onnx.ModelProto) -> None:
    """Name the nodes of the graph so that no two have the same name; unique names stay."""
    used: set[str] = set()
    for index, node in enumerate(model.graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in used:
            name = f"{name}_{index}"
        node.name = name
        used.add(name)


def is_quantised(model: onnx.ModelProto) -> bool:
    """Whether a model has quantised tensors already."""
    return any("QuantizeLinear" in node.op_type or "Integer" in node.op_type for node in model.graph.node)


def layers_of(model: onnx.ModelProto) -> list[Layer]:
    """The layers of a model in floats, in the order of its graph.

    Args:
        model: with shapes inferred and nodes named.
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = _shapes(model)
    found = []
    for node in model.graph.node:
        weight = weights.get(node.input[1]) if node.op_type in _PRODUCTS and len(node.input) > 1 else None
        if weight is None or node.domain not in ("", "ai.onnx") or node.input[0] in weights:
            continue
        if weight.data_type != TensorProto.FLOAT or (node.op_type == "MatMul" and len(weight.dims) != 2):
            continue
        count = math.prod(weight.dims)
        products = _products(node, tuple(weight.dims), shapes)
        found.append(Layer(node.name, node.op_type, tuple(node.input), products, count))
    return found


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    return {
        value.name: tuple(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)
        for value in values
    }


def _products(node: NodeProto, weights: Sequence[int], shapes: dict[str, tuple[int, ...]]) -> int:
    """Multiply-adds of a layer; 0 where its shapes are not known."""
    made = math.prod(shapes.get(node.output[0], (0,)))
    if node.op_type == "Conv":
        return made * math.prod(weights[1:])
    if node.op_type == "ConvTranspose":
        # Each element of the input meets the weights of its channel.
        return math.prod(shapes.get(node.input[0], (0,))) * math.prod(weights[1:])
    if node.op_type == "Gemm":
        flipped = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
        return made * weights[1 if flipped else 0]
    return made * weights[0]


def add_weights(quantised: onnx.ModelProto, floats: onnx.ModelProto, layers: Sequence[Layer]) -> None:
    """Add the weights in floats to a quantised model, for layers that go back to them.

    Their names get an ending: what dequantises a bias has the name of the bias already.
    """
    wanted = {name for layer in layers for name in layer.inputs[1:]}
    for tensor in floats.graph.initializer:
        if tensor.name in wanted:
            quantised.graph.initializer.add().CopyFrom(tensor)
            quantised.graph.initializer[-1].name = tensor.name + _FLOATS


def only_quantised(model: onnx.ModelProto, layers: Sequence[Layer], names: Collection[str]) -> None:
    """Take the quantisation out of a model again, but for some layers; changes the model.

    A pair stays behind a tensor that a quantised layer reads, that a quantised convolution makes, or that
    bytes went through on their way. Outputs of the model are floats.

    Args:
        model: of the quantiser, after `add_weights`.
        layers: all of them.
        names: of those that stay quantised.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    for layer, node in _nodes_of(model, layers):
        if layer.name not in names:
            for place, name in enumerate(layer.inputs[1:], start=1):
                node.input[place] = name + _FLOATS if name + _FLOATS in weights else name
    pairs = _Pairs(model, {layer.name for layer in layers}, names)
    outputs = {value.name for value in model.graph.output}
    renamed, made, dropped = {}, {}, set()
    for pair in pairs.unwanted():
        dropped |= {pair.quantize.name, pair.dequantize.name}
        source, target = pair.quantize.input[0], pair.dequantize.output[0]
        if target in outputs:
            made[source] = renamed[source] = target
        else:
            renamed[target] = source
    for node in model.graph.node:
        node.input[:] = [_last(renamed, name) for name in node.input]
        node.output[:] = [made.get(name, name) for name in node.output]
    kept = [node for node in model.graph.node if node.name not in dropped]
    _replace_nodes(model, kept)
    _drop_unused(model)


def _last(renamed: dict[str, str], name: str) -> str:
    """The present name of a tensor that was renamed, perhaps more than once."""
    while name in renamed:
        name = renamed[name]
    return name


def _nodes_of(model: onnx.ModelProto, layers: Sequence[Layer]) -> Iterable[tuple[Layer, NodeProto]]:
    nodes = {node.name: node for node in model.graph.node}
    return [(layer, nodes[layer.name]) for layer in layers]


@dataclass(frozen=True, eq=False)
class _Pair:
    """The QuantizeLinear and DequantizeLinear through which one tensor passes."""

    quantize: NodeProto
    dequantize: NodeProto


class _Pairs:
    """The pairs behind activations, and which of them some quantised layers need."""

    def __init__(self, model: onnx.ModelProto, layers: Collection[str], quantised: Collection[str]) -> None:
        self._layers, self._quantised = layers, quantised
        self._maker = {name: node for node in model.graph.node for name in node.output}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._outputs = {value.name for value in model.graph.output}
        self._pairs = {
            node.output[0]: _Pair(self._maker[node.input[0]], node)
            for node in model.graph.node
            if node.op_type == "DequantizeLinear" and node.input[0] in self._maker
        }
        self._known: dict[str, bool] = {}

    def unwanted(self) -> list[_Pair]:
        """The pairs that nothing quantised needs."""
        return [pair for name, pair in self._pairs.items() if not self._wanted(name)]

    def _wanted(self, name: str) -> bool:
        if name not in self._known:
            self._known[name] = self._judged(name, self._pairs[name])
        return self._known[name]

    def _judged(self, name: str, pair: _Pair) -> bool:
        readers = self._readers.get(name, [])
        if name in self._outputs:
            return False
        if any(node.name in self._quantised and node.input[0] == name for node in readers):
            return True
        if readers and all(self._bounds(node) for node in readers):
            return False
        maker = self._maker.get(pair.quantize.input[0])
        while maker is not None and maker.op_type in ACTIVATIONS:
            source = maker.input[0]
            source = self._pairs[source].quantize.input[0] if source in self._pairs else source
            maker = self._maker.get(source)
        if maker is None:
            return False
        if maker.name in self._layers:
            return maker.op_type in _WITH_OUTPUT and maker.name in self._quantised
        return maker.op_type in PASSED and maker.input[0] in self._pairs and self._wanted(maker.input[0])

    def _bounds(self, node: NodeProto) -> bool:
        """Whether a node bounds values and has a pair of its own behind it."""
        behind = self._readers.get(node.output[0], [])
        return node.op_type in ACTIVATIONS and any(one.op_type == "QuantizeLinear" for one in behind)


def _replace_nodes(model: onnx.ModelProto, nodes: Sequence[NodeProto]) -> None:
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _drop_unused(model: onnx.ModelProto) -> None:
    """Remove weights, and what dequantises them, that nothing reads any more."""
    outputs = {value.name for value in model.graph.output}
    read = {name for node in model.graph.node for name in _read_by(node)} | outputs
    kept = [node for node in model.graph.node if node.op_type != "DequantizeLinear" or node.output[0] in read]
    if len(kept) < len(model.graph.node):
        _replace_nodes(model, kept)
        read = {name for node in model.graph.node for name in _read_by(node)} | outputs
    weights = [tensor for tensor in model.graph.initializer if tensor.name in read]
    if len(weights) < len(model.graph.initializer):
        fresh = onnx.GraphProto()
        fresh.initializer.extend(weights)
        del model.graph.initializer[:]
        model.graph.initializer.extend(fresh.initializer)


def _read_by(node: NodeProto) -> Iterable[str]:
    """Names that a node reads, with those that its graphs read from around them."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _read_by(inner)
