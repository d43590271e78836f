"""Which products stay in single precision although the model's tensors lie in halves: a decision of a plan.

What is decided at a product holds for its layer. Other functions follow their neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from host.lowering.choices import Choices
from host.lowering.fusion import Group
from host.lowering.graph import Graph, Node, Value
from host.model import Layer
from host.model.site import HALF, SINGLE, TYPE


def choose_types(graph: Graph, half: str, choices: Choices) -> None:
    """Ask for each product with constant weights in which type its layer computes: `choices.types`.

    Products of layers that were decided already are not asked for.

    Args:
        graph: with "conv" and "dense" nodes.
        half: the type of halves, "float16" or "bfloat16".
        choices: of a plan.
    """
    for node in graph.nodes:
        if not node.layers or not _multiplies_weights(node):
            continue
        decided = [choices.types[layer] for layer in node.layers if layer in choices.types]
        if decided:
            taken = min(decided)
        else:
            shapes = " by ".join("x".join(map(str, value.shape)) for value in node.inputs[:2])
            taken = choices.take(TYPE, node, (SINGLE, HALF), HALF, f"{node.op} of {shapes} {half}")
        for layer in node.layers:
            choices.types.setdefault(layer, taken)


def _multiplies_weights(node: Node) -> bool:
    known = node.op in ("conv", "dense") and node.inputs[1].is_constant
    return known and node.output.dtype == "float32"


def is_single(layers: Sequence[Layer], types: Mapping[Layer, int]) -> bool:
    """Whether a product of these layers is to compute in single precision."""
    return any(types.get(layer) == SINGLE for layer in layers)


def values_in_single(groups: Sequence[Group], types: Mapping[Layer, int]) -> set[Value]:
    """The values that stay in single precision: those that a function in single precision reads.

    Functions with products compute in what was decided for these. Functions without products that hand each
    other values are in single precision together, where one of them reads or makes a value of a product in
    single precision. What such functions write for products of halves alone is rounded once more or not at
    all by being stored as halves, since these products round what they read.

    Args:
        groups: after fusion.
        types: what was decided, by layer.
    """
    if SINGLE not in types.values():
        return set()
    flow = _Flow(groups)
    # Not of the whole group: what belongs to another layer may be computed behind an anchor.
    layers = {group: group.anchor.layers if group.anchor is not None else () for group in flow.groups}
    single = {group for group in flow.groups if is_single(layers[group], types)}
    free = [group for group in flow.groups if not any(layer in types for layer in layers[group])]
    unseen = set(free)
    for first in free:
        if first not in unseen:
            continue
        unseen.discard(first)
        together, around = [first], set[Group]()
        for group in together:
            for other in flow.beside(group):
                if other in unseen:
                    unseen.discard(other)
                    together.append(other)
                else:
                    around.add(other)
        if not single.isdisjoint(around.difference(together)):
            single.update(together)
    return {value for value, root in flow.roots.items() if any(one in single for one in flow.readers[root])}


class _Flow:
    """What the functions of a model hand each other; views are looked through.

    Args:
        groups: after fusion.

    Attributes:
        groups: without views.
        roots: of each value that is read, the value that it is a view of.
        readers: the groups that read a value or a view of it, by root.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = [group for group in groups if not group.is_view]
        self.roots: dict[Value, Value] = {}
        self.readers: dict[Value, list[Group]] = {}
        self._makers: dict[Value, Group] = {}
        for group in groups:
            if group.is_view:
                view, shown = group.nodes[0].output, group.nodes[0].inputs[0]
                self.roots[view] = self._root(shown)
                continue
            self._makers.update(dict.fromkeys(group.results, group))
            for value in _read(group):
                self.readers.setdefault(self._root(value), []).append(group)
        for root in self.roots.values():
            self.readers.setdefault(root, [])

    def _root(self, value: Value) -> Value:
        return self.roots.setdefault(value, value)

    def beside(self, group: Group) -> list[Group]:
        """The groups that make what a group reads, or read what it makes."""
        makers = (self._makers.get(self.roots[value]) for value in _read(group))
        readers = (one for value in group.results for one in self.readers.get(value, ()))
        return [one for one in (*makers, *readers) if one is not None and one is not group]


def _read(group: Group) -> dict[Value, None]:
    """What a group reads and does not make itself."""
    made = {value for node in group.nodes for value in node.outputs}
    return dict.fromkeys(value for node in group.nodes for value in node.inputs if value not in made)
