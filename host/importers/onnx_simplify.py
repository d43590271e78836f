"""ONNX graphs made simple before the import: shapes as numbers, constants folded, functions and branches inlined.

What the graph computes stays the same; what a compiler has to understand of ONNX becomes less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from host.importers.onnx_branches import inline_constant_branch
from host.importers.onnx_file import OnnxFile

# A folded constant may have this many elements; larger ones stay operators and cost no space in the bundle.
FOLD_ELEMENTS = 1 << 16

_MAX_ROUNDS = 8
_RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
}
_STANDARD = ("", "ai.onnx")


def simplify(
    file: OnnxFile, shapes: dict[str, tuple[int, ...]], supported: Collection[str]
) -> onnx.ModelProto:
    """The graph of a file in its simplest form.

    Args:
        file: a model taken apart; it is not changed.
        shapes: shape of every input.
        supported: standard operators that need no inlining of their function body.

    Returns:
        A model of the same inputs, outputs and large weights, with shapes of all values where they can be inferred.
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
        changed = _fold(model)
        changed = _inline_functions(model, supported) or changed
        if not changed:
            break
    _remove_unused(model.graph)
    kept = [value for value in model.graph.input if value.name in user_inputs]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


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


def _set_shape(value: ValueInfoProto, shape: Iterable[int]) -> None:
    if value.type.WhichOneof("value") != "tensor_type":
        return
    declared = value.type.tensor_type.shape
    del declared.dim[:]
    declared.SetInParent()
    for size in shape:
        declared.dim.add().dim_value = size


def _forget_symbolic_shapes(graph: onnx.GraphProto) -> None:
    """Drop what the file says of inner shapes where it has symbols: inference says it better, with numbers."""
    known = [value for value in graph.value_info if static_shape(value) is not None]
    del graph.value_info[:]
    graph.value_info.extend(known)
    for value in graph.output:
        if value.type.WhichOneof("value") == "tensor_type" and static_shape(value) is None:
            value.type.tensor_type.ClearField("shape")


def _fold(model: onnx.ModelProto) -> bool:
    """Replace nodes whose outputs are known by constants; true if any was."""
    graph = model.graph
    types = value_types(graph)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    values: dict[str, np.ndarray] = {}
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    nodes: list[NodeProto] = []
    changed = False
    for node in graph.node:
        branch = inline_constant_branch(node, lambda name: _value(name, constants, values))
        if branch is not None:
            new_nodes, new_tensors = branch
            nodes += new_nodes
            graph.initializer.extend(new_tensors)
            constants |= {tensor.name: tensor for tensor in new_tensors}
            changed = True
            continue
        outputs = _evaluate(node, opsets, types, constants, values)
        if outputs is None:
            nodes.append(node)
            continue
        changed = True
        for name, array in outputs.items():
            values[name] = array
            tensor = numpy_helper.from_array(array, name)
            graph.initializer.append(tensor)
            constants[name] = tensor
    if changed:
        del graph.node[:]
        graph.node.extend(nodes)
    return changed


def _value(name: str, constants: dict[str, TensorProto], values: dict[str, np.ndarray]) -> np.ndarray | None:
    if name not in values and name in constants and constants[name].data_type != TensorProto.STRING:
        values[name] = numpy_helper.to_array(constants[name])
    return values.get(name)


def _evaluate(
    node: NodeProto,
    opsets: dict[str, int],
    types: dict[str, ValueInfoProto],
    constants: dict[str, TensorProto],
    values: dict[str, np.ndarray],
) -> dict[str, np.ndarray] | None:
    """Values of a node's outputs if they follow from constants or from shapes, else None."""
    if node.domain not in _STANDARD or node.op_type in _RANDOM:
        return None
    if node.op_type in ("Shape", "Size"):
        return _fold_shape(node, static_shape(types.get(node.input[0])))
    if any(attribute.type in (attribute.GRAPH, attribute.GRAPHS) for attribute in node.attribute):
        return None
    feeds = {name: _value(name, constants, values) for name in node.input if name}
    if any(array is None for array in feeds.values()) or not _small_outputs(node, types):
        return None
    evaluator = ReferenceEvaluator(_as_graph(node, opsets, feeds))
    try:
        results = evaluator.run(None, feeds)
    except Exception:  # noqa: BLE001 - whatever the evaluator cannot do stays in the graph
        return None
    names = [name for name in node.output if name]
    if any(not isinstance(result, np.ndarray | np.generic) for result in results):
        return None
    arrays = [np.asarray(result) for result in results]
    if any(array.size > FOLD_ELEMENTS or array.dtype.kind not in "fiubV" for array in arrays):
        return None
    return dict(zip(names, arrays, strict=True))


def _as_graph(
    node: NodeProto, opsets: dict[str, int], feeds: dict[str, np.ndarray | None]
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


def _small_outputs(node: NodeProto, types: dict[str, ValueInfoProto]) -> bool:
    """Whether the outputs are known to be small, or nothing is known of them (then they are checked after)."""
    for name in node.output:
        shape = static_shape(types.get(name))
        if shape is not None and np.prod(shape, dtype=np.int64) > FOLD_ELEMENTS:
            return False
    return True


def _inline_functions(model: onnx.ModelProto, supported: Collection[str]) -> bool:
    """Replace operators that the importer lacks by their function bodies; true if any was."""
    wanted = {
        node.op_type
        for node in model.graph.node
        if node.domain in _STANDARD and node.op_type not in supported and _has_body(node.op_type)
    }
    if not wanted:
        return False
    before = [node.op_type for node in model.graph.node]
    identifiers = [(domain, name) for name in sorted(wanted) for domain in _STANDARD]
    inlined = onnx.inliner.inline_selected_functions(model, identifiers, inline_schema_functions=True)
    model.CopyFrom(inlined)
    return [node.op_type for node in model.graph.node] != before


def _has_body(operator: str) -> bool:
    try:
        schema = onnx.defs.get_schema(operator)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


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
