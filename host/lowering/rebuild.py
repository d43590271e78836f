"""The common form of a pass: walk a graph once and build another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, flatten, map_outputs

# What leaves no work behind where it is gone.
MOVES = frozenset({"reshape", "transpose", "permute"})
# Gets a node and its translated inputs; returns the values that replace its outputs.
Rule = Callable[[Builder, Node, tuple[Value, ...]], Value | tuple[Value, ...]]


def rebuild(graph: Graph, rule: Rule) -> Graph:
    """A graph in which every node is what `rule` makes of it."""
    builder = Builder(graph.operators)
    replaced: dict[Value, Value] = {}
    for node in graph.nodes:
        builder.layers = node.layers
        inputs = tuple(replaced.get(value, value) for value in node.inputs)
        result = rule(builder, node, inputs)
        outputs = (result,) if isinstance(result, Value) else result
        replaced.update(zip(node.outputs, outputs, strict=True))
    outputs = map_outputs(graph.outputs, lambda value: replaced.get(value, value))
    made = remove_dead(builder.graph(graph.inputs, outputs, graph.functions))
    inherit_layers(graph, made, replaced)
    return made


def inherit_layers(old: Graph, new: Graph, replaced: Mapping[Value, Value]) -> None:
    """Give the layers of nodes that became part of others to these.

    What replaces a node has its layers. Where nothing that is left does, it became a part of what its readers
    became. Views and transposes that are gone are a part of nothing.

    Args:
        old: the graph before a pass.
        new: the graph that the pass made.
        replaced: new values by the old ones that they replace.
    """
    alive, readers = set(new.nodes), old.consumers()
    heirs: dict[Node, set[Node]] = {}
    for node in reversed(old.nodes):
        made = (replaced.get(output, output).producer for output in node.outputs)
        heirs[node] = {one for one in made if one in alive}
        if not heirs[node]:
            behind = (reader for output in node.outputs for reader in readers.get(output, ()))
            heirs[node] = {heir for reader in behind for heir in heirs[reader]}
        if node.op not in MOVES:
            for heir in heirs[node]:
                if not set(node.layers) <= set(heir.layers):
                    heir.layers = tuple(sorted({*heir.layers, *node.layers}))


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
