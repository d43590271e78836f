"""Bounds of an ONNX model, checked before anything works on it: a small file is not to make much work.

The numbers are those of `device_agent/contract/limits.json`, section "model".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto, TypeProto

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.importers.onnx.control_flow.loops import MAX_STEPS

# A loop of more turns than this is no loop over a sequence, and takes for ever.
MAX_TURNS = 1 << 20
_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_LIMITS = LIMITS.model


def check_model(name: str, model: onnx.ModelProto) -> None:
    """Refuse a model that is out of bounds.

    Args:
        name: of the file, for messages.
        model: as parsed; nothing of it has been looked at.

    Raises:
        ModelFileError: which bound, and where.
    """
    try:
        _Check(name, model).run()
    except RecursionError as error:
        raise ModelFileError(f"{name}: it is nested too deeply: export the model again") from error


def check_count(name: str, nodes: int) -> None:
    """Refuse a graph that has grown out of bounds.

    Raises:
        ModelFileError: it has too many nodes.
    """
    if nodes > _LIMITS.nodes:
        raise ModelFileError(
            f"{name}: its graph has over {_LIMITS.nodes} nodes with its functions and loops written out: "
            "export the model without them"
        )


def check_shape(name: str, what: str, shape: Iterable[int], most: int = _LIMITS.elements) -> None:
    """Refuse a tensor of an impossible size.

    Raises:
        ModelFileError: a negative size, too many dimensions, or too many elements.
    """
    sizes = list(shape)
    if len(sizes) > _LIMITS.rank:
        raise ModelFileError(f"{name}: {what} has {len(sizes)} dimensions, at most {_LIMITS.rank} are read")
    if any(size < 0 for size in sizes):
        raise ModelFileError(f"{name}: {what} has a negative size: export the model again")
    if max(sizes, default=0) > _LIMITS.dimension or math.prod(sizes) > most:
        raise ModelFileError(f"{name}: {what} has over {most} elements: export the model again")


class _Check:
    """One pass over a model."""

    def __init__(self, name: str, model: onnx.ModelProto) -> None:
        self._name, self._model = name, model
        self._functions = {(entry.domain, entry.name): entry for entry in model.functions}
        self._costs: dict[tuple[str, str], int] = {}
        self._open: list[tuple[str, str]] = []

    def run(self) -> None:
        """Checks names, sizes and counts of the whole model, before anything is converted."""
        graph = self._model.graph
        self._names(entry.domain for entry in self._model.opset_import)
        self._names(part for entry in self._model.functions for part in (entry.name, entry.domain))
        for kind, values in (("inputs", graph.input), ("outputs", graph.output)):
            if len(values) > _LIMITS.interface:
                self._refuse(f"it has {len(values)} {kind}, at most {_LIMITS.interface} are read")
        if len(self._functions) != len(self._model.functions):
            self._refuse("it defines a function twice")
        for tensor in graph.initializer:
            self._tensor(tensor, own=True)
        cost = self._graph(graph, 1, {})
        for function in self._model.functions:
            self._cost(function)
        check_count(self._name, cost)

    def _refuse(self, reason: str) -> None:
        raise ModelFileError(f"{self._name}: {reason}: export the model again")

    def _names(self, names: Iterable[str]) -> None:
        for name in names:
            if not isinstance(name, str):  # protobuf hands out what is not UTF-8 as bytes
                self._refuse(f"the name {printable(name, 40)} is not UTF-8")
            if len(name) > _LIMITS.name_characters:
                self._refuse(f"the name {printable(name, 40)} has {len(name)} characters")

    def _graph(self, graph: GraphProto, depth: int, around: Mapping[str, TensorProto]) -> int:
        """Check a graph, and count its nodes with those of what they call.

        Args:
            graph: of the model or of a node.
            depth: 1 for the model's.
            around: constants that it may read from outside.
        """
        if depth > _LIMITS.graph_depth:
            self._refuse(f"its graphs are nested deeper than {_LIMITS.graph_depth}")
        constants = dict(around)
        self._names([graph.name])
        for value in (*graph.input, *graph.output, *graph.value_info):
            self._names([value.name])
            self._type(value.name, value.type)
        if depth > 1:
            for tensor in graph.initializer:
                self._tensor(tensor)
        for sparse in graph.sparse_initializer:
            check_shape(self._name, "a sparse weight", sparse.dims, _LIMITS.computed_elements)
        constants |= {tensor.name: tensor for tensor in graph.initializer}
        return self._nodes(graph.node, depth, constants | dict(_known(graph.node)))

    def _nodes(self, nodes: Iterable[NodeProto], depth: int, constants: Mapping[str, TensorProto]) -> int:
        cost = 0
        for node in nodes:
            cost += 1 + self._node(node, depth, constants)
            check_count(self._name, cost)
        return cost

    def _node(self, node: NodeProto, depth: int, constants: Mapping[str, TensorProto]) -> int:
        self._names((node.name, node.op_type, node.domain, *node.input, *node.output))
        if not node.output:
            self._refuse(f"its node {printable(node.op_type, 40)} gives nothing")
        turns = self._turns(node, constants)
        cost = 0
        for attribute in node.attribute:
            cost += turns * self._attribute(attribute, depth, constants)
        called = self._functions.get((node.domain, node.op_type))
        return cost + (self._cost(called) if called is not None else 0)

    def _attribute(self, attribute: AttributeProto, depth: int, constants: Mapping[str, TensorProto]) -> int:
        self._names([attribute.name])
        for tensor in (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors:
            self._tensor(tensor)
        graphs = [attribute.g] if attribute.HasField("g") else []
        return sum(self._graph(graph, depth + 1, constants) for graph in (*graphs, *attribute.graphs))

    def _cost(self, function: FunctionProto) -> int:
        """Nodes of a function, with those of the functions that it calls."""
        key = (function.domain, function.name)
        if key in self._open:
            self._refuse(f"its function {printable(function.name, 40)} calls itself")
        if len(self._open) >= _LIMITS.graph_depth:
            self._refuse(f"its functions call each other deeper than {_LIMITS.graph_depth}")
        if key not in self._costs:
            self._open.append(key)
            self._names((*function.input, *function.output, *function.attribute))
            self._costs[key] = self._nodes(function.node, 1, dict(_known(function.node)))
            self._open.pop()
        return self._costs[key]

    def _turns(self, node: NodeProto, constants: Mapping[str, TensorProto]) -> int:
        """How often the graphs of a node are written out."""
        if node.op_type != "Loop" or not node.input or node.input[0] not in constants:
            return 1
        try:
            turns = int(onnx.numpy_helper.to_array(constants[node.input[0]]).reshape(-1)[0])
        except (ValueError, TypeError, IndexError, KeyError):
            return 1  # the graph's own checks say what is wrong with the constant
        # The largest number means: until the body's condition ends it.
        if MAX_TURNS < turns < (1 << 63) - 1:
            self._refuse(f"a loop has {turns} turns, at most {MAX_TURNS} are run")
        return max(turns, 1) if turns <= MAX_STEPS else 1

    def _tensor(self, tensor: TensorProto, own: bool = False) -> None:
        self._names([tensor.name])
        self._names(text for entry in tensor.external_data for text in (entry.key, entry.value))
        what = f"weight {printable(tensor.name, 60)!r}"
        if tensor.data_type not in _TYPES:
            self._refuse(f"{what} has data type {tensor.data_type}, which does not exist")
        check_shape(self._name, what, tensor.dims)
        if tensor.data_location == TensorProto.EXTERNAL and not own:
            self._refuse(f"{what} within a node lies in another file")

    def _type(self, name: str, kind: TypeProto) -> None:
        if kind.WhichOneof("value") != "tensor_type":
            return
        tensor = kind.tensor_type
        if tensor.elem_type not in _TYPES | {TensorProto.UNDEFINED}:
            self._refuse(f"{printable(name, 60)!r} has data type {tensor.elem_type}, which does not exist")
        if len(tensor.shape.dim) > _LIMITS.rank:
            self._refuse(f"{printable(name, 60)!r} has {len(tensor.shape.dim)} dimensions")
        for dimension in tensor.shape.dim:
            self._names([dimension.dim_param])
            if dimension.dim_value > _LIMITS.dimension:
                self._refuse(f"{printable(name, 60)!r} has a size of {dimension.dim_value}")


def _known(nodes: Iterable[NodeProto]) -> Iterator[tuple[str, TensorProto]]:
    """Constants among nodes, by name."""
    for node in nodes:
        if node.op_type == "Constant" and node.output:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield node.output[0], attribute.t
