"""The common form of a pass: walk a graph once and build another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, flatten, map_outputs

# Gets a node and its translated inputs; returns the values that replace its outputs.
Rule = Callable[[Builder, Node, tuple[Value, ...]], Value | tuple[Value, ...]]


def rebuild(graph: Graph, rule: Rule) -> Graph:
    """A graph in which every node is what `rule` makes of it."""
    builder = Builder(graph.operators)
    replaced: dict[Value, Value] = {}
    for node in graph.nodes:
        inputs = tuple(replaced.get(value, value) for value in node.inputs)
        result = rule(builder, node, inputs)
        outputs = (result,) if isinstance(result, Value) else result
        replaced.update(zip(node.outputs, outputs, strict=True))
    outputs = map_outputs(graph.outputs, lambda value: replaced.get(value, value))
    return remove_dead(builder.graph(graph.inputs, outputs, graph.functions))


def remove_dead(graph: Graph) -> Graph:
    """A graph without the nodes that no output depends on."""
    needed = set(flatten(graph.outputs))
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(output in needed for output in node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    kept.reverse()
    return replace(graph, nodes=kept)
