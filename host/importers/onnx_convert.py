"""A simplified ONNX graph as a relax module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import NodeProto, helper, numpy_helper
from tvm import relax

from host.errors import ImportFailed
from host.importers.names import Names
from host.importers.onnx_operators import Context, converter_for
from host.importers.onnx_simplify import static_shape


def convert_graph(model: onnx.ModelProto, weights: dict[str, np.ndarray]) -> tvm.IRModule:
    """Build `main` of a simplified model.

    Args:
        model: the graph, with a shape for every input.
        weights: large weights by name; each is removed once it is in the module.

    Returns:
        A module whose `main` takes the graph's inputs in order and returns its outputs.

    Raises:
        ImportFailed: a node or a type that relax cannot express; `operator` names the node's.
    """
    graph = model.graph
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    names = Names()
    values: dict[str, Any] = {}
    parameters = [_parameter(value, names) for value in graph.input]
    values.update({value.name: variable for value, variable in zip(graph.input, parameters, strict=True)})
    for tensor in graph.initializer:
        values[tensor.name] = _constant(numpy_helper.to_array(tensor), tensor.name)
    for name in list(weights):
        values[name] = _constant(weights.pop(name), name)
    builder = relax.BlockBuilder()
    failure: ImportFailed | None = None
    with builder.function("main", params=parameters):
        with builder.dataflow():
            try:
                for node in graph.node:
                    _convert_node(builder, node, opset, values)
                outputs = [_output(builder, values, value.name) for value in graph.output]
            except ImportFailed as error:
                # The function is closed all the same: a builder left open complains on stderr.
                failure, outputs = error, [relax.const(0.0, "float32")]
            result = builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        builder.emit_func_output(result)
    if failure is not None:
        raise failure
    module = builder.get()
    module["main"] = module["main"].with_attr("num_input", len(parameters))
    return module


def _parameter(value: onnx.ValueInfoProto, names: Names) -> relax.Var:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ImportFailed(f"input {value.name!r} is a {kind}, not a tensor")
    dtype = _dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type), value.name)
    return relax.Var(names.fresh(value.name), relax.TensorType(static_shape(value), dtype))


def _constant(array: np.ndarray, name: str) -> tvm.ir.GenericConst:
    _dtype(array.dtype, name)
    return relax.const(tvm.runtime.tensor(np.require(array, requirements="C")))


def _dtype(dtype: np.dtype, name: str) -> str:
    if dtype.kind not in "fiub" and dtype.name != "bfloat16":
        raise ImportFailed(f"{name!r} has values of type {dtype.name}, which the compiler does not have")
    return dtype.name


def _convert_node(builder: relax.BlockBuilder, node: NodeProto, opset: int, values: dict[str, Any]) -> None:
    operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
    converter = converter_for(operator)
    attributes: Mapping[str, Any] = {entry.name: _attribute(entry) for entry in node.attribute}
    arguments = [values[name] if name else None for name in node.input]
    context = Context(builder, operator, opset, len(node.output), values)
    try:
        result = converter(context, arguments, attributes)
        results = _unpack(builder, result, len(node.output))
    except ImportFailed:
        raise
    except Exception as error:  # converters raise whatever TVM's C++ raises
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ImportFailed(f"operator {operator} cannot be converted: {reason}", operator) from error
    for name, value in zip(node.output, results, strict=False):
        if name:
            values[name] = value


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    return tuple(value) if isinstance(value, list) else value


def _unpack(builder: relax.BlockBuilder, result: Any, wanted: int) -> list[Any]:
    """One relax value for each output of a node, bound, so that it is computed once however often it is read."""
    if isinstance(result, relax.Tuple):
        return [_bind(builder, value) for value in result.fields]
    if isinstance(result, tuple | list):
        return [_bind(builder, value) for value in result]
    bound = _bind(builder, result)
    if isinstance(bound.ty, relax.TupleType) and wanted >= 1:
        return [builder.emit(relax.TupleGetItem(bound, index)) for index in range(len(bound.ty.fields))]
    return [bound]


def _bind(builder: relax.BlockBuilder, value: Any) -> Any:
    if isinstance(value, relax.Var | tvm.ir.GenericConst | relax.ShapeExpr):
        return value
    return builder.emit(value)


def _output(builder: relax.BlockBuilder, values: dict[str, Any], name: str) -> Any:
    value = values[name]
    if isinstance(value.ty, relax.ShapeType):
        return builder.emit(relax.op.shape_to_tensor(value))
    if not isinstance(value.ty, relax.TensorType):
        raise ImportFailed(f"output {name!r} is not a tensor")
    return value
