"""Nodes that compute the same from the same inputs become one."""

from __future__ import annotations

from typing import Any

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value
from host.lowering.rebuild import rebuild


def share_equal(graph: Graph) -> Graph:
    """A graph in which no node is computed twice from the same inputs."""
    seen: dict[Any, tuple[Value, ...]] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        if node.template is not None:
            return builder.copy(node, inputs)
        key = (node.op, inputs, tuple(sorted(node.attrs.items())), node.output.shape, node.output.dtype)
        if key not in seen:
            seen[key] = builder.copy(node, inputs)
        return seen[key]

    return rebuild(graph, rule)
