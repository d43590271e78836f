"""Finds activations and normalisations that arrive as several operations and makes each one."""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value
from host.lowering.passes.recognise import activations, normalisations
from host.lowering.rebuild import rebuild

__all__ = ["recognise"]

_RULES = (*activations.RULES, *normalisations.RULES)


def recognise(graph: Graph) -> Graph:
    """An equal graph in which known subgraphs are single operations."""

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        outputs = builder.copy(node, inputs)
        if outputs[0].producer is None:
            return outputs
        # The copy is in the graph already; if a rule replaces it, it is removed as dead.
        for match in _RULES:
            result = match(builder, outputs[0].producer)
            if result is not None:
                return result
        return outputs

    return rebuild(graph, rule)
