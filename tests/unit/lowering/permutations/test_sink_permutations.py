"""Shuffles of channels go into constant weights, and no value changes."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from host.lowering.graph import Graph
from host.lowering.passes.permutations import channels
from host.lowering.passes.permutations.recognise import recognise_permutations
from host.lowering.passes.permutations.sink_permutations import only_channels, sink_permutations
from tests.unit.lowering.permutations.reference import RandomGraph, evaluate


def sunk(graph: Graph) -> Graph:
    return sink_permutations(only_channels(recognise_permutations(graph)))


def count(graph: Graph) -> collections.Counter[str]:
    return collections.Counter(node.op for node in graph.nodes)


@pytest.mark.parametrize("cost", [0.5, 14])
@pytest.mark.parametrize("start", range(0, 200, 50))
def test_no_value_changes(start: int, cost: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # With few channels joining would never be the fastest.
    monkeypatch.setattr(channels, "_RUN", cost)
    permuted = 0
    for seed in range(start, start + 50):
        drawn = RandomGraph(seed)
        graph = drawn.drawn()
        image = drawn.array(*graph.inputs[0].shape)
        found = recognise_permutations(graph)
        permuted += count(found)["permute"]
        made = sunk(graph)
        assert count(made)["permute"] == 0
        for ours, wanted in zip(evaluate(made, [image]), evaluate(graph, [image]), strict=True):
            np.testing.assert_array_equal(ours, wanted, str(seed))
    assert permuted > 25
