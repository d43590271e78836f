"""What is made of weights is made once for all functions of a model, and apart where it is made otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.graph import Graph, Value, constant
from host.lowering.ops import known_operators
from host.lowering.quantised.packing import DENSE, pack_quantised
from host.lowering.sharing.made_once import MadeOnce
from tests.unit.lowering.harness import board, normal


def test_arrays_in_the_same_memory_are_made_once() -> None:
    made, array = MadeOnce(), normal(4, 6)
    first = made.of([array], 0, lambda: [array + 1])
    # Another view of the same numbers.
    assert made.of([array[:]], 0, lambda: [array + 2])[0] is first[0]
    others: list[tuple[list[np.ndarray], int]] = [
        ([array], 1),
        ([array.reshape(6, 4)], 0),
        ([array.view(np.int32)], 0),
        ([array[:2]], 0),
        ([array.copy()], 0),
        ([array, array], 0),
    ]
    for given, way in others:
        assert made.of(given, way, lambda: [array + 3])[0] is not first[0]


def doubled(made: MadeOnce, array: np.ndarray) -> np.ndarray:
    return made.of([array], 0, lambda: [array * 2])[0]


def test_memory_of_arrays_that_nobody_else_keeps_is_not_taken_for_theirs() -> None:
    made = MadeOnce()
    for number in range(50):
        assert doubled(made, np.full(1000, number))[0] == 2 * number


WEIGHT = np.arange(8 * 64, dtype=np.int16).reshape(8, 64).astype(np.int8)
SCALES = np.ones((8, 2), np.float16)


def product(*groups: int) -> Graph:
    """Products with the same weight; each group has as many of its elements."""
    builder = Builder(known_operators())
    data = Value((2, 64), "float32")
    inputs = [data, constant(WEIGHT), constant(SCALES)]
    made = [builder.one(DENSE, inputs, (2, 8), "float32", bits=8, group=group) for group in groups]
    return builder.graph([data], tuple(made))


def weights_of(graph: Graph) -> list[Any]:
    return [node.inputs[1].data for node in graph.nodes if "quantised" in node.op]


def test_a_weight_in_groups_of_two_sizes_is_packed_for_each() -> None:
    """Scales of two groups each, or of one, have the same shape."""
    hardware = board().hardware
    choices = Choices()
    first, again, other = (
        weights_of(pack_quantised(product(group), hardware, choices))[0] for group in (32, 32, 16)
    )
    assert first is again and other.shape != first.shape
    both = weights_of(pack_quantised(product(32, 16), hardware, choices))
    assert both[0] is first and both[1] is other
