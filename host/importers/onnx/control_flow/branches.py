"""`If` nodes whose condition is known: the branch taken moves into the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper


def inline_constant_branch(
    node: NodeProto, value: Callable[[str], np.ndarray | None]
) -> tuple[list[NodeProto], list[TensorProto]] | None:
    """The nodes and constants of the branch that an `If` takes; None if it is another node or not known.

    Args:
        node: any node.
        value: gives the value of a name if it is constant.
    """
    if node.op_type != "If":
        return None
    condition = value(node.input[0])
    if condition is None:
        return None
    wanted = "then_branch" if bool(np.asarray(condition).reshape(-1)[0]) else "else_branch"
    branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    return embed(branch, {}, list(node.output), f"{node.output[0]}/{wanted}/")


def embed(
    graph: onnx.GraphProto, given: dict[str, str], results: list[str], prefix: str
) -> tuple[list[NodeProto], list[TensorProto]]:
    """A subgraph as nodes of the graph around it.

    Args:
        graph: the subgraph.
        given: outer names for its inputs.
        results: outer names for its outputs.
        prefix: put before the names that it defines, so that they clash with none outside.

    Returns:
        Nodes and constants.
    """
    own = {name for inner in graph.node for name in inner.output} | {
        tensor.name for tensor in graph.initializer
    }
    rename = {name: prefix + name for name in own if name} | given
    nodes = [rename_node(inner, rename) for inner in graph.node]
    tensors = []
    for tensor in graph.initializer:
        copy = TensorProto()
        copy.CopyFrom(tensor)
        copy.name = rename[tensor.name]
        tensors.append(copy)
    for output, result in zip(graph.output, results, strict=True):
        if result:
            nodes.append(helper.make_node("Identity", [rename.get(output.name, output.name)], [result]))
    return nodes, tensors


def rename_node(node: NodeProto, rename: dict[str, str]) -> NodeProto:
    """A copy of a node with other names for what it reads and makes, in its subgraphs too."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for field in (copy.input, copy.output):
        names = [rename.get(name, name) for name in field]
        del field[:]
        field.extend(names)
    for attribute in copy.attribute:
        for subgraph in [attribute.g] if attribute.type == attribute.GRAPH else attribute.graphs:
            _rename_outer(subgraph, rename)
    return copy


def _rename_outer(graph: onnx.GraphProto, rename: dict[str, str]) -> None:
    """Rename what an inner subgraph takes from outside; what it defines itself stays."""
    own = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    own |= {tensor.name for tensor in graph.initializer}
    visible = {before: after for before, after in rename.items() if before not in own}
    nodes = [rename_node(node, visible) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.output:
        value.name = visible.get(value.name, value.name)
