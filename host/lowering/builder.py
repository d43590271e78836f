"""Builds graphs: shapes are inferred, and trivial movement is left out as it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from host.lowering.graph import Graph, Node, Shape, Value, broadcast_shape, constant, moves_only_units
from host.lowering.spec import OperatorTable, OpSpec
from host.model import Layer

# A folded constant may be larger than what it is made from (broadcast, full); above this many
# elements it is left to the device instead of being stored in the bundle.
_FOLD_LIMIT = 1 << 22
# Constants from this size on are not copied to be transposed.
_LARGE_BYTES = 1 << 20


class Builder:
    """Collects the nodes of a graph under construction.

    Args:
        operators: that the graph may hold.

    Attributes:
        operators: as given.
        nodes: what was built, in order.
        layers: of the nodes that are built next.
    """

    def __init__(self, operators: OperatorTable) -> None:
        self.operators = operators
        self.nodes: list[Node] = []
        self.layers: tuple[Layer, ...] = ()

    def graph(
        self, inputs: Sequence[Value], outputs: Any, functions: Mapping[str, Any] | None = None
    ) -> Graph:
        """The graph of what was built; arguments as of `Graph`."""
        return Graph(tuple(inputs), self.nodes, outputs, self.operators, dict(functions or {}))

    def emit(
        self,
        op: str,
        inputs: Sequence[Value],
        attrs: dict[str, Any],
        outputs: Sequence[tuple[Shape, str]],
        template: Any = None,
    ) -> tuple[Value, ...]:
        """Add a node (or fold it, if all its inputs are constants) and return its outputs."""
        spec = self.operators[op]
        if spec.fold is not None and all(value.is_constant for value in inputs):
            folded = _folded(spec, inputs, attrs, outputs[0])
            if folded is not None and _worth_folding(inputs, folded):
                return (constant(folded),)
        node = Node(spec, tuple(inputs), attrs, template=template, layers=self.layers)
        node.outputs = tuple(Value(tuple(shape), dtype, producer=node) for shape, dtype in outputs)
        self.nodes.append(node)
        return node.outputs

    def copy(self, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """The same operation on other inputs of the same shapes."""
        specs = [(value.shape, value.dtype) for value in node.outputs]
        return self.emit(node.op, inputs, node.attrs, specs, node.template)

    def one(self, op: str, inputs: Sequence[Value], shape: Shape, dtype: str, **attrs: Any) -> Value:
        """Add a node with one output."""
        return self.emit(op, inputs, attrs, [(shape, dtype)])[0]

    def unary(self, op: str, value: Value, **attrs: Any) -> Value:
        """Add an elementwise operation whose output has the shape and the dtype of its input."""
        return self.one(op, [value], value.shape, value.dtype, **attrs)

    def binary(self, op: str, left: Value, right: Value) -> Value:
        """Add an elementwise operation of two inputs, which are broadcast to one shape."""
        dtype = self.operators[op].output_type or left.dtype
        return self.one(op, [left, right], broadcast_shape(left.shape, right.shape), dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        """Convert `value` to another type; nothing is emitted where the type is the same."""
        return value if value.dtype == dtype else self.one("cast", [value], value.shape, dtype)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """`value` seen with another shape; chains of reshapes become one."""
        target = tuple(int(d) for d in shape)
        if -1 in target:
            known = prod(d for d in target if d != -1)
            target = tuple(value.size // max(known, 1) if d == -1 else d for d in target)
        if value.data is not None:
            return value if value.shape == target else constant(value.data.reshape(target))
        while value.producer is not None and value.producer.op == "reshape":
            value = value.producer.inputs[0]
        if value.shape == target:
            return value
        return self.one("reshape", [value], target, value.dtype)

    def transpose(self, value: Value, axes: Sequence[int]) -> Value:
        """`value` with its dimensions reordered; a view where only dimensions of size 1 move."""
        axes = tuple(int(a) for a in axes)
        shape = tuple(value.shape[a] for a in axes)
        if axes == tuple(range(len(axes))):
            return value
        if value.data is not None:
            moved = np.transpose(value.data, axes)
            # A large weight stays a view: packing copies it anyway, and once is enough.
            large = moved.nbytes >= _LARGE_BYTES
            return Value(shape, value.dtype, moved) if large else constant(moved)
        if moves_only_units(value.shape, axes):
            return self.reshape(value, shape)
        if value.producer is not None and value.producer.op == "transpose":
            inner = value.producer.attrs["axes"]
            return self.transpose(value.producer.inputs[0], [inner[a] for a in axes])
        return self.one("transpose", [value], shape, value.dtype, axes=axes)

    def pad(self, value: Value, before: Shape, after: Shape, fill: float) -> Value:
        """`value` with `fill` around it; negative amounts are not allowed."""
        if not any(before) and not any(after):
            return value
        shape = tuple(b + d + a for b, d, a in zip(before, value.shape, after, strict=True))
        return self.one("pad", [value], shape, value.dtype, before=before, after=after, value=fill)

    def slice(
        self, value: Value, begin: Sequence[int], shape: Sequence[int], strides: Sequence[int]
    ) -> Value:
        """Elements begin + i * stride of every dimension, `shape` of them."""
        target = tuple(int(d) for d in shape)
        if target == value.shape and all(s == 1 for s in strides):
            return value
        return self.one("slice", [value], target, value.dtype, begin=tuple(begin), strides=tuple(strides))


def _folded(
    spec: OpSpec, inputs: Sequence[Value], attrs: dict[str, Any], output: tuple[Shape, str]
) -> np.ndarray | None:
    assert spec.fold is not None
    shape, dtype = output
    with np.errstate(all="ignore"):
        result = spec.fold([value.data for value in inputs if value.data is not None], attrs, shape, dtype)
    if result is None:
        return None
    return np.asarray(np.broadcast_to(np.asarray(result, dtype=dtype), shape), order="C")


def _worth_folding(inputs: Sequence[Value], folded: np.ndarray) -> bool:
    size = folded.size
    return size <= _FOLD_LIMIT or size <= 2 * sum(value.size for value in inputs)
