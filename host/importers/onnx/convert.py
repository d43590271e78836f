"""A simplified ONNX graph as a relax module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import NodeProto, helper, numpy_helper
from tvm import relax

from device_agent.contract.limits import LIMITS
from host.errors import ImportFailed
from host.importers.layers import LayerNames
from host.importers.native_output import converting
from host.importers.onnx.evaluate import evaluate, static_shape, value_types
from host.importers.onnx.names import Names, layer_of_node
from host.importers.onnx.operators import Context, constant, constant_value, converter_for

_WIDER = {"int2": "int8", "uint2": "uint8", "int4": "int8", "uint4": "uint8"}


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
    names = Names()
    parameters = [_parameter(value, names) for value in graph.input]
    values: dict[str, Any] = dict(zip((value.name for value in graph.input), parameters, strict=True))
    dequantised = _only_dequantised(graph)
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        values[tensor.name] = _constant(_widened(array, tensor.name in dequantised), tensor.name)
    for name in list(weights):
        values[name] = _constant(_widened(weights.pop(name), name in dequantised), name)
    conversion = _Conversion(model, values)
    builder = conversion.builder
    failure: ImportFailed | None = None
    with builder.function("main", params=parameters):
        with builder.dataflow():
            try:
                for node in graph.node:
                    conversion.convert(node)
                outputs = [conversion.output(value.name) for value in graph.output]
            except ImportFailed as error:
                # The function is closed in any case: a builder left open complains on stderr.
                failure, outputs = error, [relax.const(0.0, "float32")]
            result = builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        builder.emit_func_output(result)
    if failure is not None:
        raise failure
    module = builder.get()
    module["main"] = module["main"].with_attr("num_input", len(parameters))
    return conversion.layers.written(module)


class _Conversion:
    """Converts node after node.

    Args:
        model: the graph, for its versions and types.
        values: inputs and constants by name; results are added.

    Attributes:
        layers: what made each result.
    """

    def __init__(self, model: onnx.ModelProto, values: dict[str, Any]) -> None:
        self.builder = relax.BlockBuilder()
        self.layers = LayerNames()
        self.values = values
        self._types = value_types(model.graph)
        self._opsets = {entry.domain: entry.version for entry in model.opset_import}
        self._opset = self._opsets.get("", self._opsets.get("ai.onnx", 1))

    def convert(self, node: NodeProto) -> None:
        """Bind the outputs of a node.

        Raises:
            ImportFailed: it has no conversion.
        """
        operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        # Relax knows shapes that ONNX's inference does not, so constants turn up here that it left.
        known = evaluate(node, self._opsets, self._types, lambda name: constant_value(self.values.get(name)))
        if known is not None:
            self.values.update({name: _constant(array, name) for name, array in known.items()})
            return
        with converting(operator):
            results = self._results(operator, node)
        if len(results) < len(node.output) and any(node.output[len(results) :]):
            raise ImportFailed(f"operator {operator}: not all of its outputs can be converted", operator)
        self.values.update({name: value for name, value in zip(node.output, results, strict=False) if name})
        self.layers.record(results, *layer_of_node(node))

    def output(self, name: str) -> Any:
        """The value of an output of the graph.

        Raises:
            ImportFailed: it is not a tensor.
        """
        value = self.values[name]
        if isinstance(value.ty, relax.ShapeType):
            return self.builder.emit(relax.op.shape_to_tensor(value))
        if not isinstance(value.ty, relax.TensorType):
            raise ImportFailed(f"output {name!r} is not a tensor")
        return value

    def _results(self, operator: str, node: NodeProto) -> list[Any]:
        shapes = tuple(static_shape(self._types.get(name)) for name in node.output)
        if shapes and all(shape is not None and 0 in shape for shape in shapes):
            return [
                self._nothing(name, shape) for name, shape in zip(node.output, shapes, strict=True) if shape
            ]
        converter = converter_for(operator)
        attributes: Mapping[str, Any] = {entry.name: _attribute(entry) for entry in node.attribute}
        arguments = [self.values[name] if name else None for name in node.input]
        context = Context(self.builder, operator, self._opset, tuple(node.output), shapes, self.values)
        return self._unpack(converter(context, arguments, attributes), len(node.output))

    def _nothing(self, name: str, shape: tuple[int, ...]) -> Any:
        """A tensor without elements, which no loop has to run for."""
        dtype = helper.tensor_dtype_to_np_dtype(self._types[name].type.tensor_type.elem_type)
        return self.builder.emit(relax.op.zeros(shape, _dtype(dtype, name)))

    def _unpack(self, result: Any, wanted: int) -> list[Any]:
        """A relax value per output, bound, so that it is computed once however often it is read."""
        if isinstance(result, relax.Tuple):
            return [self._bind(value) for value in result.fields]
        if isinstance(result, tuple | list):
            return [self._bind(value) for value in result]
        bound = self._bind(result)
        if isinstance(bound.ty, relax.TupleType) and wanted >= 1:
            items = range(len(bound.ty.fields))
            return [self.builder.emit(relax.TupleGetItem(bound, index)) for index in items]
        return [bound]

    def _bind(self, value: Any) -> Any:
        if isinstance(value, relax.Var | tvm.ir.GenericConst | relax.ShapeExpr):
            return value
        return self.builder.emit(value)


def _parameter(value: onnx.ValueInfoProto, names: Names) -> relax.Var:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ImportFailed(f"input {value.name!r} is a {kind}, not a tensor")
    dtype = _dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type), value.name)
    return relax.Var(names.fresh(value.name), relax.TensorType(static_shape(value), dtype))


def _only_dequantised(graph: onnx.GraphProto) -> set[str]:
    """Names of values that nothing but DequantizeLinear reads."""
    read: dict[str, set[str]] = {value.name: {"an output"} for value in graph.output}
    for node in graph.node:
        for name in node.input:
            read.setdefault(name, set()).add(node.op_type)
    return {name for name, operators in read.items() if operators == {"DequantizeLinear"}}


def _widened(array: np.ndarray, is_dequantised: bool) -> np.ndarray:
    """Numbers of fewer than 8 bits as bytes, where nothing reads them that depends on their width."""
    wide = _WIDER.get(array.dtype.name) if is_dequantised else None
    return array if wide is None else array.astype(wide)


def _constant(array: np.ndarray, name: str) -> tvm.ir.GenericConst:
    _dtype(array.dtype, name)
    return constant(array)


def _dtype(dtype: np.dtype, name: str) -> str:
    if dtype.name not in LIMITS.item_bytes:
        kind = "str" if dtype.kind in "OSU" else dtype.name
        raise ImportFailed(f"{name!r} has values of type {kind}, which the compiler does not have")
    return dtype.name


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    return tuple(value) if isinstance(value, list) else value
