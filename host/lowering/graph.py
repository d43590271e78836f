"""The graph that lowering works on: tensors with fixed shapes and operations between them.

Relax is read into it (`read`), passes rebuild it, and `emit` writes relax again. It is smaller than
relax: every operation takes tensors only, attributes are plain Python values, constants are numpy
arrays, and a pass is one walk over `Graph.nodes` that builds a new list. What each operation means is
in its specification, see `host.lowering.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from host.lowering.spec import OperatorTable, OpSpec
from host.lowering.types import numeric_type
from host.model import Layer

Shape = tuple[int, ...]


@dataclass(eq=False)
class Value:
    """One tensor.

    Attributes:
        shape: every dimension.
        dtype: numpy dtype name.
        data: the elements of a constant, else None.
        name: of a graph input, for the reader of the result.
        producer: the node that makes it; None for inputs and constants.
    """

    shape: Shape
    dtype: str
    data: np.ndarray | None = None
    name: str = ""
    producer: Node | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def is_constant(self) -> bool:
        """Whether the elements are known."""
        return self.data is not None

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return numeric_type(self.dtype).is_float

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Those of its producer."""
        return self.producer.layers if self.producer is not None else ()

    def scalar(self) -> float | None:
        """The number that every element of a constant is, if it is one element."""
        if self.data is None or self.data.size != 1:
            return None
        return float(self.data.reshape(-1)[0])


@dataclass(eq=False)
class Node:
    """One operation.

    Attributes:
        spec: what it is.
        inputs: tensors read.
        attrs: everything else that it depends on.
        outputs: tensors made.
        template: for "relax.*" and "call_tir", the relax call whose tensor arguments `inputs` replace.
        layers: of the model's file, which it computes or helps to compute.
    """

    spec: OpSpec
    inputs: tuple[Value, ...]
    attrs: dict[str, Any]
    outputs: tuple[Value, ...] = ()
    template: Any = None
    layers: tuple[Layer, ...] = ()

    @property
    def op(self) -> str:
        """Its name; "relax.*" for operations that only TVM's own legalisation knows."""
        return self.spec.name

    @property
    def output(self) -> Value:
        """The first (usually the only) output."""
        return self.outputs[0]


@dataclass(eq=False)
class Graph:
    """A whole model.

    Attributes:
        inputs: in the order of the model's signature, used or not.
        nodes: in an order in which they can run.
        outputs: nested tuples of values as `main` returns them.
        operators: what its operations are.
        functions: TensorIR functions that "call_tir" nodes name.
    """

    inputs: tuple[Value, ...]
    nodes: list[Node]
    outputs: Any
    operators: OperatorTable
    functions: dict[str, Any] = field(default_factory=dict)

    def output_values(self) -> list[Value]:
        """All tensors that the graph returns, tuples flattened."""
        return list(flatten(self.outputs))

    def consumers(self) -> dict[Value, list[Node]]:
        """The nodes that read each value; a node that reads a value twice is listed once."""
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                readers.setdefault(value, []).append(node)
        return readers


def weights_bytes(graph: Graph) -> int:
    """Bytes of the constants that one run reads; of a table from which rows are taken, those of the rows."""
    read: dict[Value, int] = {}
    for node in graph.nodes:
        for position, value in enumerate(node.inputs):
            if value.data is None:
                continue
            size = value.data.nbytes
            if node.op == "take" and position == 0:
                size = min(size, node.output.size * value.data.itemsize)
            read[value] = max(size, read.get(value, 0))
    return sum(read.values())


def read_once(graph: Graph) -> Callable[[Value], bool]:
    """Whether one node reads a value and nothing else: what makes it may be folded into that node."""
    readers, returned = graph.consumers(), set(graph.output_values())
    return lambda value: len(readers.get(value, ())) == 1 and value not in returned


def flatten(outputs: Any) -> Iterable[Value]:
    """The values of nested tuples, in order."""
    if isinstance(outputs, Value):
        yield outputs
    else:
        for part in outputs:
            yield from flatten(part)


def map_outputs(outputs: Any, function: Callable[[Value], Value]) -> Any:
    """Nested tuples with `function` applied to each value."""
    if isinstance(outputs, Value):
        return function(outputs)
    return tuple(map_outputs(part, function) for part in outputs)


def constant(data: np.ndarray | float | int, dtype: str | None = None) -> Value:
    """A constant value (C-contiguous; not copied where it already is)."""
    # Not ascontiguousarray, which makes an array of a scalar.
    array = np.asarray(data, dtype=dtype, order="C")
    return Value(array.shape, array.dtype.name, array)


def broadcast_shape(*shapes: Shape) -> Shape:
    """The shape that all `shapes` broadcast to, numpy's rules."""
    return tuple(int(d) for d in np.broadcast_shapes(*shapes))


def normalise_axis(axis: int, rank: int) -> int:
    """The axis counted from the first dimension, where `axis` may count from the last (-1)."""
    return axis + rank if axis < 0 else axis


def moves_only_units(shape: Shape, axes: Sequence[int]) -> bool:
    """Whether a transpose leaves the elements in place because it moves only dimensions of size 1."""
    kept = [axis for axis in axes if shape[axis] != 1]
    return kept == sorted(kept)


def reshape_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Smallest runs of old dimensions that hold the same elements as runs of new dimensions."""
    if 0 in old:
        return None
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new):
            left, right, size_left, size_right = [i], [j], old[i], new[j]
            i, j = i + 1, j + 1
            while size_left != size_right:
                if size_left < size_right:
                    left.append(i)
                    size_left *= old[i]
                    i += 1
                else:
                    right.append(j)
                    size_right *= new[j]
                    j += 1
            groups.append((left, right))
        elif i < len(old):
            groups[-1][0].append(i) if groups else groups.append(([i], []))
            i += 1
        else:
            groups[-1][1].append(j) if groups else groups.append(([], [j]))
            j += 1
    return groups
