"""Nodes that compute the same from the same inputs become one, and so do constants of the same content.

A network that is written out over its steps reads the same weights in each of them, and exporters and passes
make a constant of each use. As several parameters they would be packed and stored once for each step, and a
run would read all of them from memory: 8 steps of a decoder with 6 MB of weights read 46 MB, which no cache
holds.
"""

from __future__ import annotations

from typing import Any

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value
from host.lowering.rebuild import rebuild
from host.lowering.sharing.equal_arrays import EqualArrays


def share_equal(graph: Graph) -> Graph:
    """A graph in which no node is computed twice from the same inputs, and no constant is there twice.

    Constants of one element stay apart: functions have them in their code, and a node that is computed in
    each of two functions is better than one whose result is stored for both.
    """
    seen: dict[Any, tuple[Value, ...]] = {}
    constants = _Constants()

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        inputs = tuple(constants.shared(value) for value in inputs)
        if node.template is not None:
            return builder.copy(node, inputs)
        key = (node.op, inputs, tuple(sorted(node.attrs.items())), node.output.shape, node.output.dtype)
        if key not in seen:
            seen[key] = builder.copy(node, inputs)
        return seen[key]

    return rebuild(graph, rule)


def share_constants(graph: Graph) -> Graph:
    """A graph in which no constant is there twice; equal nodes, as passes make for several readers, stay."""
    constants = _Constants()

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        return builder.copy(node, tuple(constants.shared(value) for value in inputs))

    return rebuild(graph, rule)


class _Constants:
    """The constants of a graph; one for each content."""

    def __init__(self) -> None:
        self._known = EqualArrays()
        self._values: list[Value] = []
        self._found: dict[Value, Value] = {}

    def shared(self, value: Value) -> Value:
        """The constant of the same content that was met first; a value that is no constant as it is."""
        if value.data is None or value.size <= 1:
            return value
        if value not in self._found:
            place = self._known.place(value.data)
            if place == len(self._values):
                self._values.append(value)
            self._found[value] = self._values[place]
        return self._found[value]
