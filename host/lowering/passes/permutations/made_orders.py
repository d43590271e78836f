"""In which order products make their channels, so that those that are read together lie together.

The columns of a constant weight may be in any order. Where every second channel of a result is read
(ShuffleNetV2 as it was first published), or a shuffle is returned, the weight takes that in too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from host.lowering.graph import Node, Value
from host.lowering.passes.permutations.channels import Place

# For each channel that an operation reads, its group or its place there.
Read = Mapping[Place, int]
_PRODUCTS = frozenset({"conv", "dense", "integer_conv", "integer_dense"})


def made_orders(reads: Sequence[Read]) -> dict[Node, np.ndarray]:
    """For products whose channels would better be made in another order: of which channel each column is.

    Args:
        reads: what was written out, by an order of the channels that was to be kept.
    """
    ranks: dict[Node, list[dict[int, int]]] = {}
    for read in reads:
        own: dict[Node, dict[int, int]] = {}
        made = {tensor: maker(tensor) for tensor in dict.fromkeys(tensor for tensor, _ in read)}
        for (tensor, channel), rank in read.items():
            node = made[tensor]
            if node is not None:
                own.setdefault(node, {})[channel] = rank
        for node, rank_of in own.items():
            ranks.setdefault(node, []).append(rank_of)
    orders = {node: _order(node.output.shape[-1], read) for node, read in ranks.items()}
    return {node: order for node, order in orders.items() if (np.diff(order) != 1).any()}


def _order(count: int, ranks: Sequence[Mapping[int, int]]) -> np.ndarray:
    """The channels of the first read first, each in the order of the others."""
    return np.array(sorted(range(count), key=lambda channel: [rank.get(channel, count) for rank in ranks]))


def maker(tensor: Value) -> Node | None:
    """The product whose channels become those of a tensor one by one; None if there is no such product."""
    node = tensor.producer
    while node is not None:
        if node.op in _PRODUCTS and node.attrs.get("groups", 1) == 1:
            return node if node.inputs[1].is_constant else None
        source = _source(node)
        if source is None or source.shape[-1] != tensor.shape[-1]:
            return None
        node = source.producer
    return None


def _source(node: Node) -> Value | None:
    """The tensor that has an operation's channels at the same places."""
    if node.op in ("reshape", "pool", "depthwise_conv", "conv"):
        of_each = node.op != "conv" or node.inputs[1].shape[-2] == 1
        return node.inputs[0] if of_each else None
    wide = {
        value for value in node.inputs if not value.is_constant and value.shape[-1:] == node.output.shape[-1:]
    }
    return wide.pop() if node.spec.is_elementwise and len(wide) == 1 else None
