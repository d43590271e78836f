"""Which tensors of a model lie in memory in half precision.

Every function reads halves, computes in single precision, sums included, and writes halves: what is gained is
memory and its traffic, and each tensor is rounded once (11 bits). Inputs and outputs of the model keep their
type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from host.lowering.functions import FusedCall
from host.lowering.fusion import Group
from host.lowering.graph import Graph, Value
from host.lowering.types import numeric_type

# Smaller constants (biases, scales, epsilons) gain nothing, and may be too small or too large for a half.
_SMALLEST = 1024


def halves(graph: Graph, steps: Sequence[FusedCall | Group]) -> frozenset[Value]:
    """The tensors to keep as halves.

    Args:
        graph: after fusion.
        steps: calls of our own functions, and the operators that stay as they are.
    """
    chosen = {value for value in _tensors(steps) if _fits(value)}
    chosen -= {*graph.inputs, *graph.output_values()}
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
    return frozenset(chosen)


def _tensors(steps: Sequence[FusedCall | Group]) -> Iterable[Value]:
    for step in steps:
        if isinstance(step, FusedCall):
            yield from (*step.arguments, *step.results)
        elif step.is_view:
            yield from (step.nodes[0].inputs[0], step.nodes[0].output)


def _fits(value: Value) -> bool:
    half = numeric_type(value.dtype).half
    if half is None:
        return False
    if value.data is None:
        return True
    largest = float(np.abs(value.data).max(initial=0.0))
    return value.size >= _SMALLEST and largest <= float(np.finfo(half).max)
