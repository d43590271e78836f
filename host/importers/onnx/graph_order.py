"""The order of a graph's nodes: ONNX wants each behind those that it reads, ONNX Runtime takes any."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import NodeProto


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put every node behind what it reads, in place; nodes that are so already stay in their order.

    Those in a circle keep some order: they are refused where they are converted.
    """
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    needed = [{makers[name] for name in _read(node) if name in makers} for node in graph.node]
    if all(place > max(before, default=-1) for place, before in enumerate(needed)):
        return
    order: list[int] = []
    done: set[int] = set()
    for first in range(len(needed)):
        open_, entered = [first], {first}
        while open_:
            place = open_[-1]
            missing = next((one for one in sorted(needed[place] - done) if one not in entered), None)
            if place in done or missing is None:
                open_.pop()
                if place not in done:
                    done.add(place)
                    order.append(place)
                continue
            entered.add(missing)
            open_.append(missing)
    nodes = [NodeProto.FromString(graph.node[place].SerializeToString()) for place in order]
    del graph.node[:]
    graph.node.extend(nodes)


def _read(node: NodeProto) -> Iterator[str]:
    """Names that a node reads, those inside of its graphs included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for inner in [*([attribute.g] if attribute.type == attribute.GRAPH else []), *attribute.graphs]:
            for one in inner.node:
                yield from _read(one)
