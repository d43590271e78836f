"""Which tensors of a model lie in memory in half precision: as float16 or as bfloat16.

Every function reads halves, computes in single precision, sums included, and writes halves: what is gained is
memory and its traffic, and each tensor is rounded once (11 bits, or 8). Dot products of bfloat16 numbers and
products of halves (`passes/halves/half_sums.py`) read them as they lie in memory. Inputs and outputs of the
model keep their type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from host.lowering.functions import FusedCall
from host.lowering.fusion import Group
from host.lowering.graph import Graph, Node, Value
from host.lowering.passes.halves.half_sums import OF_HALVES
from host.lowering.types import numeric_type, within_range

# Smaller constants (biases, scales, epsilons) gain nothing, and may be too small or too large for a half.
_SMALLEST = 1024
# Products whose weights a GPU multiplies as halves, however few they are.
_PRODUCTS = frozenset({"packed_dense", "packed_conv", "grouped_conv", "depthwise_conv"})


def halves(
    graph: Graph,
    steps: Sequence[FusedCall | Group],
    half: str,
    products: bool = False,
    single: Collection[Value] = (),
) -> Mapping[Value, str]:
    """The tensors to keep as halves, with their type in memory.

    Args:
        graph: after fusion.
        steps: calls of our own functions, and the operators that stay as they are.
        half: the type of halves.
        products: whether products are computed of halves alone, so that few weights are halves too.
        single: values that a plan leaves in single precision.
    """
    wanted = {value for node in graph.nodes for value in _small(node, products) if value.is_constant}
    chosen = {value for value in _tensors(steps) if _fits(value, half, value in wanted)}
    chosen -= {*graph.inputs, *graph.output_values(), *single}
    views = []
    for step in steps:
        if isinstance(step, Group) and step.is_view:
            views.append((step.nodes[0].inputs[0], step.nodes[0].output))
        elif isinstance(step, Group):
            # Its function is TVM's or the importer's: it takes what it was written for.
            chosen -= {value for node in step.nodes for value in (*node.inputs, *node.outputs)}
        elif step.single:
            chosen -= {*step.arguments, *step.results}
    left = len(chosen) + 1
    while len(chosen) < left:
        left = len(chosen)
        # A view is of the type of what it shows.
        chosen -= {value for pair in views for value in pair if not chosen.issuperset(pair)}
    return dict.fromkeys(chosen, half)


def _tensors(steps: Sequence[FusedCall | Group]) -> Iterable[Value]:
    for step in steps:
        if isinstance(step, FusedCall):
            yield from (*step.arguments, *step.results)
        elif step.is_view:
            yield from (step.nodes[0].inputs[0], step.nodes[0].output)


def _small(node: Node, products: bool) -> tuple[Value, ...]:
    """What a node reads as halves however few: weights of products of halves, what is added to these."""
    if node.op in OF_HALVES or (products and node.op in _PRODUCTS):
        return (node.inputs[1],)
    made = any(value.producer is not None and value.producer.op in OF_HALVES for value in node.inputs)
    return node.inputs if node.op == "add" and made else ()


def _fits(value: Value, half: str, wanted: bool) -> bool:
    if half not in numeric_type(value.dtype).halves:
        return False
    if value.data is None:
        return True
    return (wanted or value.size >= _SMALLEST) and within_range(value.data, half)
