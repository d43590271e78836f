"""Activations and normalisations that arrive as several operations become one each.

What finds them is in the specification of the operation that they become.
"""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value
from host.lowering.rebuild import rebuild


def recognise(graph: Graph) -> Graph:
    """An equal graph in which known subgraphs are single operations."""
    recognisers = graph.operators.recognisers

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        outputs = builder.copy(node, inputs)
        if outputs[0].producer is None:
            return outputs
        # The copy is in the graph already; if it is replaced, it is removed as dead.
        for match in recognisers:
            result = match(builder, outputs[0].producer)
            if result is not None:
                return result
        return outputs

    return rebuild(graph, rule)
