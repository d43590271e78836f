"""The standard nodes that replace one contributed node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

from host.errors import ImportFailed
from host.importers.onnx.evaluate import STANDARD, value_types

# Constants up to this many elements are known to the inference of a node's shapes.
_SHAPE_ELEMENTS = 64
# Places of a sequence that are written as a constant, and in both directions of a mask.
_MOST_POSITIONS = 1 << 13


# What the inference of a node's types raises.
_REFUSED = (
    onnx.defs.SchemaError,
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
)
# The input that has the type of the result.
_QUANTISING = {"QuantizeLinear": -1, "DequantizeLinear": 1}


class LaterError(Exception):
    """The type of a value that an expansion depends on is not known."""


class KnownTypes:
    """Types of a graph's values, which grow node by node.

    Args:
        model: its inputs, constants and inferred types are known.

    Attributes:
        declared: types of values that the standard has no rule for.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.opset = max(entry.version for entry in model.opset_import if entry.domain in STANDARD)
        self._opsets = list(model.opset_import)
        self._types = {name: value.type for name, value in value_types(model.graph).items()}
        self._data: dict[str, TensorProto] = {}
        self.declared: list[onnx.ValueInfoProto] = []
        for tensor in model.graph.initializer:
            self._types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            if np.prod(tensor.dims, dtype=np.float64) <= _SHAPE_ELEMENTS:
                self._data[tensor.name] = tensor

    def add(self, node: NodeProto) -> None:
        """Find the types of a node's outputs where the standard says how."""
        if node.op_type == "Constant" and node.domain in STANDARD:
            self._add_constant(node)
        known = all(name in self._types and self._has_shape(name) for name in node.output if name)
        lacking = any(name and name not in self._types for name in node.input)
        if known or lacking or node.domain not in STANDARD:
            return
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, "")
            types = {name: self._types[name] for name in node.input if name}
            data = {name: self._data[name] for name in node.input if name in self._data}
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=self._opsets
            )
        except _REFUSED:
            # The standard's versions before 21 have no numbers of 16 bits here, which ONNX Runtime writes.
            if node.op_type not in _QUANTISING:
                return
            kind, shape = types[node.input[_QUANTISING[node.op_type]]], types[node.input[0]]
            found = {node.output[0]: _like(kind.tensor_type.elem_type, shape)}
        self._types.update(found)

    def get(self, name: str) -> Any:
        """The type of a value, a `TypeProto.Tensor`.

        Raises:
            LaterError: it is not known, or no tensor.
        """
        found = self._types.get(name)
        if found is None or not found.HasField("tensor_type") or not found.tensor_type.elem_type:
            raise LaterError
        return found.tensor_type

    def values(self, name: str) -> np.ndarray | None:
        """The values of a small constant, None for anything else."""
        return numpy_helper.to_array(self._data[name]) if name in self._data else None

    def declare(self, name: str, element: int, shape: Sequence[int]) -> None:
        """Make the type of a value known."""
        if name not in self._types or not self._has_shape(name):
            made = helper.make_tensor_value_info(name, element, shape)
            self._types[name] = made.type
            self.declared.append(made)

    def _has_shape(self, name: str) -> bool:
        return bool(self._types[name].tensor_type.HasField("shape"))

    def _add_constant(self, node: NodeProto) -> None:
        for entry in node.attribute:
            if entry.name == "value":
                self._types[node.output[0]] = helper.make_tensor_type_proto(entry.t.data_type, entry.t.dims)
                if np.prod(entry.t.dims, dtype=np.float64) <= _SHAPE_ELEMENTS:
                    self._data[node.output[0]] = entry.t


def _like(element: int, other: TypeProto) -> TypeProto:
    """A tensor of the shape of another."""
    made = TypeProto()
    made.CopyFrom(other)
    made.tensor_type.elem_type = element
    return made


class Body:
    """A contributed node, and the standard nodes that are written for it.

    Args:
        node: the contributed node.
        types: of the graph's values before it.
        prefix: put before names that the nodes define.
        keeps_packed: whether an operator on packed weights may stay, for the compiler to read.

    Attributes:
        nodes: written so far, in order.
    """

    def __init__(self, node: NodeProto, types: KnownTypes, prefix: str, *, keeps_packed: bool) -> None:
        self.nodes: list[NodeProto] = []
        self.keeps_packed = keeps_packed
        self._node = node
        self._types = types
        self._prefix = prefix
        self._attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}

    @property
    def opset(self) -> int:
        """Version of the standard that the graph is written in."""
        return int(self._types.opset)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the node by name."""
        return dict(self._attributes)

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute; text is text, and not bytes."""
        value = self._attributes.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def inputs(self, count: int) -> list[str]:
        """The first inputs, "" for those that are left out."""
        return [*self._node.input[:count], *[""] * (count - len(self._node.input))]

    @property
    def all_inputs(self) -> list[str]:
        """Every input."""
        return list(self._node.input)

    def has_output(self, index: int) -> bool:
        """Whether an output is used by name."""
        return index < len(self._node.output) and bool(self._node.output[index])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an input.

        Raises:
            LaterError: it is not known.
        """
        found = self._types.get(name)
        if not found.HasField("shape") or not all(one.HasField("dim_value") for one in found.shape.dim):
            raise LaterError
        return tuple(one.dim_value for one in found.shape.dim)

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of an input's elements.

        Raises:
            LaterError: it is not known.
        """
        kind: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(self._types.get(name).elem_type)
        return kind

    def known(self, name: str) -> np.ndarray | None:
        """The values of an input that is a small constant, None for others."""
        return self._types.values(name)

    def element(self, name: str) -> int:
        """The same as `dtype`, as ONNX's number of the type."""
        return int(self._types.get(name).elem_type)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Write a node with one output, and return the output's name."""
        name = f"{self._prefix}{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, list(inputs), [name], name=self._node.name, **attributes)
        )
        return name

    def constant(self, values: Any, dtype: Any) -> str:
        """Write a constant."""
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(values, dtype)))

    def numbers(self, values: Sequence[int]) -> str:
        """Write a list of sizes or axes."""
        return self.constant(values, np.int64)

    def positions(self, count: int) -> np.ndarray:
        """The numbers 0, 1, 2 and so on.

        Raises:
            ImportFailed: more than a file may make the host write.
        """
        if count > _MOST_POSITIONS:
            raise self.fail(f"{count} positions have no conversion (at most {_MOST_POSITIONS} have)")
        return np.arange(count)

    def keep(self, element: int, shape: Sequence[int]) -> None:
        """Leave the node as it is, with the type of its only output."""
        self.nodes = [self._node]
        self._types.declare(self._node.output[0], element, shape)

    def set_output(self, value: str, index: int = 0) -> None:
        """Make a value an output of the node."""
        if self.has_output(index):
            output = [self._node.output[index]]
            self.nodes.append(helper.make_node("Identity", [value], output, name=self._node.name))

    def without_outputs(self, *indices: int) -> None:
        """Refuse the node if one of these outputs is used."""
        for index in indices:
            if self.has_output(index):
                raise self.fail(f"its output {index} has no conversion")

    def without(self, **given: Any) -> None:
        """Refuse the node if one of these, by name, is anything but nothing."""
        for name, value in given.items():
            if value:
                raise self.fail(f"{name} has no conversion")

    def fail(self, reason: str) -> ImportFailed:
        """The error for a form of the operator that cannot be expressed."""
        operator = f"{self._node.domain or 'ai.onnx'}.{self._node.op_type}"
        return ImportFailed(f"operator {operator}: {reason}", operator)

    def dynamically_quantised(self, value: str) -> tuple[str, str, str]:
        """Write a value as bytes, with the scale and the zero point that it has at run time."""
        names = [f"{self._prefix}{len(self.nodes)}.{part}" for part in ("bytes", "scale", "zero")]
        self.nodes.append(helper.make_node("DynamicQuantizeLinear", [value], names, name=self._node.name))
        return names[0], names[1], names[2]

    def mean(self, value: str, axis: int = -1) -> str:
        """Write the mean over an axis, which stays with size 1."""
        if self.opset >= 18:
            return self.add("ReduceMean", value, self.numbers([axis]), keepdims=1)
        return self.add("ReduceMean", value, axes=[axis], keepdims=1)

    def unsqueeze(self, value: str, *axes: int) -> str:
        """Write axes of size 1."""
        if self.opset >= 13:
            return self.add("Unsqueeze", value, self.numbers(axes))
        return self.add("Unsqueeze", value, axes=list(axes))

    def reshape(self, value: str, *sizes: int) -> str:
        """Write another shape; 0 keeps the size of the axis, -1 is the rest."""
        return self.add("Reshape", value, self.numbers(sizes))

    def part(self, value: str, start: int, stop: int, axis: int = -1, step: int = 1) -> str:
        """Write a slice of one axis."""
        bounds = [self.numbers([one]) for one in (start, stop, axis, step)]
        return self.add("Slice", value, *bounds)


# Writes the nodes of a contributed one.
Expansion = Callable[[Body], None]
