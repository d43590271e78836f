"""`Loop` and `Scan` of known length unrolled, `If` of a computed condition as a choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from host.importers.onnx.control_flow.bags import of_bags
from host.importers.onnx.control_flow.branches import embed
from host.importers.onnx.evaluate import static_shape

# A loop longer than this, or of more nodes in all, stays a loop, and the original runtime runs the model.
MAX_STEPS = 256
MAX_NODES = 20_000

Value = Callable[[str], np.ndarray | None]
Expansion = tuple[list[NodeProto], list[TensorProto]]


def unroll(
    node: NodeProto, value: Value, types: Mapping[str, ValueInfoProto], opset: int
) -> Expansion | None:
    """The nodes that compute what a control-flow node does, without control flow.

    Args:
        node: any node.
        value: gives the value of a name if it is constant.
        types: types of the graph's values, by name.
        opset: version of the standard that the graph is written in.

    Returns:
        Nodes and constants, or None if it is another node or cannot be unrolled.
    """
    if node.op_type == "If":
        return _both_branches(node, types)
    if node.op_type == "Loop":
        return _loop(node, value, types, opset)
    if node.op_type == "Scan":
        return _scan(node, types, opset) if opset >= 9 else _scan_of_batch(node, types, opset)
    return None


def _attribute(node: NodeProto, name: str) -> onnx.AttributeProto | None:
    return next((entry for entry in node.attribute if entry.name == name), None)


def _graph(node: NodeProto, name: str) -> onnx.GraphProto:
    found = _attribute(node, name)
    assert found is not None
    return found.g


def _both_branches(node: NodeProto, types: Mapping[str, ValueInfoProto]) -> Expansion | None:
    """Both branches computed, and one chosen; only where the results are tensors of one shape."""
    condition = static_shape(types.get(node.input[0]))
    branches = {name: _graph(node, name) for name in ("then_branch", "else_branch")}
    for pair in zip(*(graph.output for graph in branches.values()), strict=True):
        shapes = [static_shape(output) for output in pair]
        if shapes[0] is None or shapes[0] != shapes[1]:
            return None
    nodes: list[NodeProto] = []
    tensors: list[TensorProto] = []
    for name, graph in branches.items():
        results = [f"{output}/{name}" for output in node.output]
        more = embed(graph, {}, results, f"{node.output[0]}/{name}/inner/")
        nodes += more[0]
        tensors += more[1]
    chooser = node.input[0]
    if condition != ():
        chooser = f"{node.output[0]}/condition"
        tensors.append(numpy_helper.from_array(np.zeros(0, np.int64), f"{chooser}/shape"))
        nodes.insert(0, helper.make_node("Reshape", [node.input[0], f"{chooser}/shape"], [chooser]))
    for output in node.output:
        choices = [chooser, f"{output}/then_branch", f"{output}/else_branch"]
        nodes.append(helper.make_node("Where", choices, [output]))
    return nodes, tensors


def _loop(node: NodeProto, value: Value, types: Mapping[str, ValueInfoProto], opset: int) -> Expansion | None:
    """A loop whose number of turns is known and whose body never stops it early."""
    body = _graph(node, "body")
    if not _always_continues(body, value):
        return None
    turns = _turns(node, value, types, len(body.input) - 2)
    if turns is not None and (len(body.input), len(body.output)) == (2, 2):
        bags = of_bags(body, turns, node.output[0], value, types)
        if bags is not None:
            return bags
    if turns is None or turns > MAX_STEPS or turns * len(body.node) > MAX_NODES:
        return None
    carried = len(body.input) - 2
    if turns == 0 and len(node.output) > carried:
        return None
    state = list(node.input[2 : 2 + carried])
    unrolled = _Unrolled(node, body, carried, opset)
    for turn in range(turns):
        numbers = {
            body.input[0].name: unrolled.constant(f"turn{turn}", np.array(turn, np.int64)),
            body.input[1].name: unrolled.constant(f"go{turn}", np.array(True)),
        }
        given = numbers | dict(zip((entry.name for entry in body.input[2:]), state, strict=True))
        state = unrolled.step(turn, given, skip=1)
    return unrolled.finish(state, [0] * (len(node.output) - carried), [])


def _turns(node: NodeProto, value: Value, types: Mapping[str, ValueInfoProto], carried: int) -> int | None:
    """The number of turns, from constants or from the declared size of what every turn adds to."""
    count = value(node.input[0]) if node.input[0] else None
    start = value(node.input[1]) if len(node.input) > 1 and node.input[1] else np.array(True)
    if count is not None and start is not None:
        return int(count.reshape(-1)[0]) if bool(start.reshape(-1)[0]) else 0
    rows = [static_shape(types.get(name)) for name in node.output[carried:] if name]
    return next((shape[0] for shape in rows if shape), None)


def _always_continues(body: onnx.GraphProto, value: Value) -> bool:
    """Whether the condition that a body computes is always true; `value` gives constants outside of it."""
    name = body.output[0].name
    for _ in range(len(body.node) + 1):
        if name == body.input[1].name:
            return True
        for tensor in body.initializer:
            if tensor.name == name:
                return bool(numpy_helper.to_array(tensor).all())
        maker = next((node for node in body.node if name in node.output), None)
        if maker is None:
            held = None if any(name == entry.name for entry in body.input) else value(name)
            return held is not None and bool(held.all())
        if maker.op_type == "Constant":
            given = _attribute(maker, "value")
            return given is not None and bool(numpy_helper.to_array(given.t).all())
        if maker.op_type not in ("Identity", "Cast"):
            return False
        name = maker.input[0]
    return False


def _scan(node: NodeProto, types: Mapping[str, ValueInfoProto], opset: int) -> Expansion | None:
    """A scan over axes of known length."""
    body = _graph(node, "body")
    held: dict[str, Any] = {
        entry.name: list(entry.ints) or entry.i for entry in node.attribute if entry.name != "body"
    }
    scanned = int(held["num_scan_inputs"])
    carried = len(node.input) - scanned
    sources = list(node.input[carried:])
    shapes = [static_shape(types.get(name)) for name in sources]
    axes = held.get("scan_input_axes") or [0] * scanned
    backward = held.get("scan_input_directions") or [0] * scanned
    results = len(node.output) - carried
    out_axes = held.get("scan_output_axes") or [0] * results
    out_backward = held.get("scan_output_directions") or [0] * results
    if any(shape is None for shape in shapes):
        return None
    turns = min(shape[axis] for shape, axis in zip(shapes, axes, strict=True) if shape is not None)
    if turns == 0 or turns > MAX_STEPS or turns * len(body.node) > MAX_NODES:
        return None
    state = list(node.input[:carried])
    unrolled = _Unrolled(node, body, carried, opset)
    for turn in range(turns):
        pieces = []
        for number, (source, axis, reverse) in enumerate(zip(sources, axes, backward, strict=True)):
            index = turns - 1 - turn if reverse else turn
            pieces.append(unrolled.pick(source, axis, index, f"in{number}_{turn}"))
        given = dict(zip((entry.name for entry in body.input), [*state, *pieces], strict=True))
        state = unrolled.step(turn, given, skip=0)
    return unrolled.finish(state, out_axes, out_backward)


def _scan_of_batch(node: NodeProto, types: Mapping[str, ValueInfoProto], opset: int) -> Expansion | None:
    """A scan of version 8: states and sequences have a batch in front, whose elements are scanned alone."""
    held: dict[str, Any] = {
        entry.name: list(entry.ints) or entry.i for entry in node.attribute if entry.name != "body"
    }
    scanned, backward = int(held["num_scan_inputs"]), held.get("directions")
    shapes = [static_shape(types.get(name)) for name in node.input[1:]]
    # Sequences that end early need a choice in every step.
    if node.input[0] or not shapes or not all(shapes):
        return None
    batch = min(shape[0] for shape in shapes if shape)
    if batch == 0 or batch > MAX_STEPS:
        return None
    prefix = f"{node.output[0] or node.name}/batch/"
    nodes: list[NodeProto] = []
    tensors: list[TensorProto] = []
    pieces: list[list[str]] = []
    for element in range(batch):
        index = f"{prefix}{element}"
        tensors.append(numpy_helper.from_array(np.array(element, np.int64), index))
        given = [f"{index}/in{number}" for number in range(len(shapes))]
        nodes += [
            helper.make_node("Gather", [source, index], [name], axis=0)
            for source, name in zip(node.input[1:], given, strict=True)
        ]
        made = [f"{index}/out{number}" for number in range(len(node.output))]
        one = helper.make_node("Scan", given, made, num_scan_inputs=scanned, body=_graph(node, "body"))
        if backward:
            one.attribute.append(helper.make_attribute("scan_input_directions", backward))
        inner = {
            name: _without_batch(types.get(source))
            for source, name in zip(node.input[1:], given, strict=True)
        }
        expansion = _scan(one, inner, opset)
        if expansion is None:
            return None
        nodes += expansion[0]
        tensors += expansion[1]
        pieces.append(made)
    for number, output in enumerate(node.output):
        if output:
            raised = []
            for made in pieces:
                raised.append(f"{made[number]}/raised")
                nodes.append(helper.make_node("Unsqueeze", [made[number]], [raised[-1]], axes=[0]))
            nodes.append(helper.make_node("Concat", raised, [output], axis=0))
    return nodes, tensors


def _without_batch(value: ValueInfoProto | None) -> ValueInfoProto:
    """The type of one element of a batch."""
    result = ValueInfoProto()
    if value is not None:
        result.CopyFrom(value)
        del result.type.tensor_type.shape.dim[0]
    return result


class _Unrolled:
    """The nodes of a loop that is being unrolled."""

    def __init__(self, node: NodeProto, body: onnx.GraphProto, carried: int, opset: int) -> None:
        self.node, self.body, self.carried, self.opset = node, body, carried, opset
        self.prefix = f"{node.output[0] or node.name}/unrolled/"
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self.rows: list[list[str]] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        """The name of a new constant."""
        self.tensors.append(numpy_helper.from_array(array, self.prefix + name))
        return self.prefix + name

    def pick(self, source: str, axis: int, index: int, name: str) -> str:
        """The name of one slice of a value."""
        number = self.constant(f"{name}/index", np.array(index, np.int64))
        self.nodes.append(helper.make_node("Gather", [source, number], [self.prefix + name], axis=axis))
        return self.prefix + name

    def step(self, turn: int, given: dict[str, str], skip: int) -> list[str]:
        """Add one turn of the body and return the names of the state after it."""
        count = len(self.body.output)
        results = [f"{self.prefix}{turn}/result{number}" for number in range(count)]
        nodes, tensors = embed(self.body, given, results, f"{self.prefix}{turn}/")
        self.nodes += nodes
        self.tensors += tensors
        self.rows.append(results[skip + self.carried :])
        return results[skip : skip + self.carried]

    def finish(self, state: list[str], axes: list[int], backward: list[int]) -> Expansion:
        """Connect the node's outputs: final states, and the rows of all turns stacked."""
        for name, output in zip(state, self.node.output, strict=False):
            if output:
                self.nodes.append(helper.make_node("Identity", [name], [output]))
        for number, output in enumerate(self.node.output[self.carried :]):
            if output:
                column = [row[number] for row in self.rows]
                reverse = number < len(backward) and backward[number]
                self._stack(column[::-1] if reverse else column, axes[number], output)
        return self.nodes, self.tensors

    def _stack(self, names: list[str], axis: int, output: str) -> None:
        raised = []
        for name in names:
            raised.append(f"{name}/raised")
            if self.opset >= 13:
                axes = self.constant(f"{name}/axes", np.array([axis], np.int64))
                self.nodes.append(helper.make_node("Unsqueeze", [name, axes], [raised[-1]]))
            else:
                self.nodes.append(helper.make_node("Unsqueeze", [name], [raised[-1]], axes=[axis]))
        self.nodes.append(helper.make_node("Concat", raised, [output], axis=axis))
