"""ONNX graphs made simple before the import: shapes as numbers, constants folded, functions inlined.

What the graph computes stays the same; what a compiler has to understand of ONNX becomes less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from host.importers.bounds import check_count
from host.importers.onnx.contributed import expand_contributed
from host.importers.onnx.control_flow.branches import inline_constant_branch
from host.importers.onnx.control_flow.loops import unroll
from host.importers.onnx.evaluate import STANDARD, evaluate, static_shape, value_types
from host.importers.onnx.functions import expand, has_body
from host.importers.onnx.kept_shapes import spread_back
from host.importers.onnx.model_file import OnnxFile
from host.importers.onnx.sequences.lists import SequenceLists

_MAX_ROUNDS = 8


def simplify(
    file: OnnxFile, shapes: dict[str, tuple[int, ...]], supported: Collection[str]
) -> onnx.ModelProto:
    """The graph of a file in its simplest form.

    Args:
        file: a model taken apart; it is not changed.
        shapes: shape of every input.
        supported: standard operators that need no inlining of their function body.

    Returns:
        A model of the same inputs, outputs and large weights, with all shapes that can be inferred.
    """
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    for value in model.graph.input:
        _set_shape(value, shapes[value.name])
    user_inputs = [value.name for value in model.graph.input]
    model.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in file.weights.items()
    )
    _forget_symbolic_shapes(model.graph)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model, convert_version=False)
    for _ in range(_MAX_ROUNDS):
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        spread_back(model.graph)
        changed = _fold(file.name, model)
        changed = expand_contributed(file.name, model) or changed
        changed = _inline_functions(file.name, model, supported) or changed
        if not changed:
            break
    _remove_unused(model.graph)
    kept = [value for value in model.graph.input if value.name in user_inputs]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def _set_shape(value: ValueInfoProto, shape: Iterable[int]) -> None:
    if value.type.WhichOneof("value") != "tensor_type":
        return
    declared = value.type.tensor_type.shape
    del declared.dim[:]
    declared.SetInParent()
    for size in shape:
        declared.dim.add().dim_value = size


def _forget_symbolic_shapes(graph: onnx.GraphProto) -> None:
    """Drop the file's own inner shapes that contain symbols: inference finds numbers."""
    known = [value for value in graph.value_info if static_shape(value) is not None]
    del graph.value_info[:]
    graph.value_info.extend(known)
    for value in graph.output:
        if value.type.WhichOneof("value") == "tensor_type" and static_shape(value) is None:
            value.type.tensor_type.ClearField("shape")


def _fold(name: str, model: onnx.ModelProto) -> bool:
    """Replace nodes whose outputs are known by constants; true if any was."""
    graph = model.graph
    types = value_types(graph)
    known = Constants(graph.initializer)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    opset = opsets.get("", opsets.get("ai.onnx", 1))
    lists = SequenceLists(known.value, types, opset)
    nodes: list[NodeProto] = []
    changed = False
    for node in graph.node:
        branch = inline_constant_branch(node, known.value) or unroll(node, known.value, types, opset)
        branch = branch or lists.without_sequences(node)
        if branch is not None:
            changed = True
            nodes += branch[0]
            check_count(name, len(nodes))
            for tensor in branch[1]:
                known.add_tensor(tensor)
            continue
        outputs = evaluate(node, opsets, types, known.value)
        if outputs is None:
            nodes.append(node)
            continue
        for output, array in outputs.items():
            known.add_tensor(numpy_helper.from_array(array, output))
    if not known.added and not changed:
        return False
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    graph.initializer.extend(known.added)
    del graph.node[:]
    graph.node.extend(copies)
    return True


class Constants:
    """Constants of a graph by name, read when they are asked for."""

    def __init__(self, tensors: Iterable[TensorProto]) -> None:
        self._tensors = {tensor.name: tensor for tensor in tensors}
        self._values: dict[str, np.ndarray] = {}
        self.added: list[TensorProto] = []

    def add_tensor(self, tensor: TensorProto) -> None:
        """Adds a constant to the graph."""
        self._tensors[tensor.name] = tensor
        self.added.append(tensor)

    def value(self, name: str) -> np.ndarray | None:
        """The values of a constant, None for anything else."""
        if name not in self._values and name in self._tensors:
            tensor = self._tensors[name]
            if tensor.data_type != TensorProto.STRING:
                self._values[name] = numpy_helper.to_array(tensor)
        return self._values.get(name)


def _inline_functions(name: str, model: onnx.ModelProto, supported: Collection[str]) -> bool:
    """Replace operators that the importer lacks by their function bodies; true if any was."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in STANDARD), 1)
    types = value_types(model.graph)
    for tensor in model.graph.initializer:
        declared = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        types.setdefault(tensor.name, declared)
    nodes: list[NodeProto] = []
    for position, node in enumerate(model.graph.node):
        body = None
        if node.domain in STANDARD and node.op_type not in supported and has_body(node.op_type, opset):
            body = expand(node, opset, types, f"{node.op_type}_{position}_{len(model.graph.node)}/")
        nodes += [node] if body is None else body
        check_count(name, len(nodes))
    if len(nodes) == len(model.graph.node) and all(
        a is b for a, b in zip(nodes, model.graph.node, strict=True)
    ):
        return False
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return True


def _remove_unused(graph: onnx.GraphProto) -> None:
    """Drop nodes and constants that no output needs. Inputs stay, they are the model's interface."""
    needed = {value.name for value in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if not any(name in needed for name in node.output):
            continue
        kept.append(node)
        needed.update(node.input)
        for attribute in node.attribute:
            for subgraph in [attribute.g, *attribute.graphs]:
                needed.update(name for inner in subgraph.node for name in inner.input)
                needed.update(value.name for value in subgraph.output)
    kept.reverse()
    tensors = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(tensors)
