"""Loops over bags as operators of whole tensors.

For each bag, rows of a table that it names are reduced to one. PyTorch's exporter writes EmbeddingBag as

    for i in range(bags):
        rows = table[numbers[first[i] : end[i]]]        # times weights[first[i] : end[i]]
        result[i] = rows.sum(0)                         # or the mean, or the largest

and bags of one length are a matrix of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from host.importers.onnx.evaluate import static_shape

Value = Callable[[str], np.ndarray | None]
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax")


def of_bags(
    body: onnx.GraphProto, turns: int, output: str, value: Value, types: Mapping[str, ValueInfoProto]
) -> tuple[list[NodeProto], list[TensorProto]] | None:
    """The nodes and constants that compute what a loop over bags of one length gives.

    Args:
        body: of a loop that carries no state.
        turns: of the loop.
        output: of the loop, whose rows are those of the turns.
        value: gives the value of a name outside of the loop if it is constant.
        types: types of values outside of the loop, by name.

    Returns:
        None if it is another loop.
    """
    reader = _Body(body, value)
    reduction = reader.maker(body.output[1].name, *_REDUCTIONS)
    if reduction is None or not reader.drops_first(reduction):
        return None
    rows = reader.maker(reduction.input[0], "Gather", "Mul")
    weights = None
    if rows is not None and rows.op_type == "Mul":
        column = reader.maker(rows.input[1], "Unsqueeze")
        if column is None or reader.axes(column) != [1]:
            return None
        weights = reader.part(column.input[0])
        rows = reader.maker(rows.input[0], "Gather")
        # A column of weights is one for each row only where rows are vectors.
        if weights is None or rows is None or reader.rank(rows.input[0], types) != 2:
            return None
    numbers = None if rows is None else reader.part(rows.input[1])
    if rows is None or numbers is None or _axis(rows) or not reader.is_outside(rows.input[0]):
        return None
    sources = (numbers, weights) if weights else (numbers,)
    places = [_places(*source[1:], turns, static_shape(types.get(source[0]))) for source in sources]
    first = places[0]
    if first is None or any(place is None or not np.array_equal(place, first) for place in places):
        return None
    return _nodes(rows.input[0], [source[0] for source in sources], first, reduction, output)


class _Body:
    """The nodes of a turn, read from their results back."""

    def __init__(self, body: onnx.GraphProto, value: Value) -> None:
        self._turn = body.input[0].name
        self._makers = {name: node for node in body.node for name in node.output}
        self._tensors = {tensor.name: tensor for tensor in body.initializer}
        self._inputs = {entry.name for entry in body.input}
        self._value = value

    def maker(self, name: str, *operators: str) -> NodeProto | None:
        """The node of one of these operators that makes a value."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type in operators else None

    def is_outside(self, name: str) -> bool:
        """Whether a value is computed outside of the loop."""
        return name not in self._makers and name not in self._tensors and name not in self._inputs

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a name, if it is constant."""
        node, held = self._makers.get(name), self._tensors.get(name)
        if node is not None and node.op_type == "Constant":
            held = next((one.t for one in node.attribute if one.name == "value"), None)
        if held is not None:
            found: np.ndarray = numpy_helper.to_array(held)
            return found
        return self._value(name) if self.is_outside(name) else None

    def rank(self, name: str, types: Mapping[str, ValueInfoProto]) -> int | None:
        """How many axes a value outside of the loop has; None if that is not known."""
        shape, held = static_shape(types.get(name)), self.constant(name)
        if shape is None:
            return None if held is None else held.ndim
        return len(shape)

    def part(self, name: str) -> tuple[str, np.ndarray, np.ndarray] | None:
        """A value outside of the loop of which a turn takes a part, and where the parts of all turns are."""
        cut = self.maker(name, "Slice")
        if cut is None or not self.is_outside(cut.input[0]) or len(cut.input) not in (3, 4):
            return None
        axes = self.constant(cut.input[3]) if len(cut.input) == 4 else np.zeros(1)
        first, end = (self._of_turns(side) for side in cut.input[1:3])
        if axes is None or axes.any() or first is None or end is None:
            return None
        return cut.input[0], first, end

    def _of_turns(self, name: str) -> np.ndarray | None:
        """The numbers outside of the loop of which each turn takes that of its own."""
        raised = self.maker(name, "Unsqueeze", "Reshape")
        taken = None if raised is None else self.maker(raised.input[0], "Gather")
        if taken is None or _axis(taken) or taken.input[1] != self._turn:
            return None
        found = self.constant(taken.input[0])
        return found if found is not None and found.ndim == 1 else None

    def drops_first(self, reduction: NodeProto) -> bool:
        """Whether a reduction is over the first axis alone, which is gone then."""
        kept = next((one.i for one in reduction.attribute if one.name == "keepdims"), 1)
        return not kept and self.axes(reduction) == [0]

    def axes(self, node: NodeProto) -> list[int] | None:
        """The axes of a node, which are an attribute or its second input; None if they are not known."""
        for one in node.attribute:
            if one.name == "axes":
                return list(one.ints)
        given = self.constant(node.input[1]) if len(node.input) > 1 else None
        return None if given is None else [int(axis) for axis in given.reshape(-1)]


def _axis(node: NodeProto) -> int:
    return next((one.i for one in node.attribute if one.name == "axis"), 0)


def _places(
    first: np.ndarray, end: np.ndarray, turns: int, shape: tuple[int, ...] | None
) -> np.ndarray | None:
    """The places of all bags, [bags, length]; None where their lengths differ or leave what is known."""
    if not 0 < turns <= min(first.size, end.size) or shape is None or len(shape) != 1:
        return None
    first, end = first[:turns].astype(np.int64), np.minimum(end[:turns].astype(np.int64), shape[0])
    lengths = end - first
    if first.min() < 0 or lengths[0] < 1 or (lengths != lengths[0]).any():
        return None
    if turns * lengths[0] > shape[0]:  # bags that share numbers: a constant as large as all of them
        return None
    return first[:, None] + np.arange(lengths[0])


def _nodes(
    table: str, sources: list[str], places: np.ndarray, reduction: NodeProto, output: str
) -> tuple[list[NodeProto], list[TensorProto]]:
    """One row of numbers for each bag, the rows of the table that they name, and their reduction."""
    nodes: list[NodeProto] = []
    tensors: list[TensorProto] = []
    prefix = f"{output}/bags/"

    def constant(name: str, array: np.ndarray) -> str:
        tensors.append(numpy_helper.from_array(array.astype(np.int64), prefix + name))
        return prefix + name

    where = constant("places", places)
    names = [f"{prefix}part{number}" for number in range(len(sources))]
    nodes += [
        helper.make_node("Gather", [source, where], [name])
        for source, name in zip(sources, names, strict=True)
    ]
    rows = f"{prefix}rows"
    nodes.append(helper.make_node("Gather", [table, names[0]], [rows]))
    if len(names) > 1:
        column = constant("column", np.array([*places.shape, 1]))
        nodes.append(helper.make_node("Reshape", [names[1], column], [f"{prefix}weights"]))
        nodes.append(helper.make_node("Mul", [rows, f"{prefix}weights"], [f"{prefix}weighted"]))
        rows = f"{prefix}weighted"
    reduced = NodeProto()
    reduced.CopyFrom(reduction)
    own = next((one for one in reduced.attribute if one.name == "axes"), None)
    inputs = [rows] if own is not None else [rows, constant("axes", np.array([1]))]
    if own is not None:
        own.ints[:] = [1]
    del reduced.input[:], reduced.output[:]
    reduced.input.extend(inputs)
    reduced.output.append(output)
    return [*nodes, reduced], tensors
