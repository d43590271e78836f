"""How constant weights take in the order of the channels that they meet."""

from __future__ import annotations

import numpy as np

from host.lowering.graph import Node, Value, constant
from host.lowering.passes.permutations.channels import Channels, cost, inverse_of
from host.lowering.passes.permutations.sink_permutations import PermutationWalk


def product(walk: PermutationWalk, node: Node) -> Channels | None:
    """A dense product, weight [K, N]: rows of the weight in the order of the channels.

    Its columns are in the order in which the channels of the result are to be made.
    """
    weight, order = node.inputs[1].data, walk.orders.get(node)
    if weight is None or (order is None and not walk.is_moved(node.inputs[0])):
        return None
    tensor, places = walk.in_any_order(node.inputs[0])
    weight = np.take(weight, inverse_of(places), axis=-2)
    if order is None:
        return walk.emit(node, [tensor, constant(weight)])
    return walk.emit(node, [tensor, _taken(weight, order, -1)], inverse_of(order))


def convolution(walk: PermutationWalk, node: Node) -> Channels | None:
    """A convolution, weight [*K, C / groups, O]: that of one group, of each channel, or of groups."""
    weight, groups = node.inputs[1].data, node.attrs["groups"]
    if groups == 1:
        return product(walk, node)
    if weight is None or not walk.is_moved(node.inputs[0]):
        return None
    if weight.shape[-2] == 1:
        return _of_each(walk, node, weight)
    return _of_groups(walk, node, weight, groups)


def depthwise(walk: PermutationWalk, node: Node) -> Channels | None:
    """A convolution of each channel, weight [*K, O]."""
    weight = node.inputs[1].data
    return None if weight is None or not walk.is_moved(node.inputs[0]) else _of_each(walk, node, weight)


def _of_each(walk: PermutationWalk, node: Node, weight: np.ndarray) -> Channels:
    """Each channel of the output is made of one of the input, which are as they lie in memory."""
    tensor, places = walk.in_any_order(node.inputs[0])
    several = weight.shape[-1] // len(places)
    made = (places[:, None] * several + np.arange(several)).reshape(-1)
    return walk.emit(node, [tensor, _taken(weight, inverse_of(made), -1)], made)


def _of_groups(walk: PermutationWalk, node: Node, weight: np.ndarray, groups: int) -> Channels:
    """The channels of each group are as they lie in memory, or as they are where that is written faster."""
    channels, size = walk.channels(node.inputs[0]), weight.shape[-2]
    order = channels.as_they_lie
    order = order[np.argsort(order // size, kind="stable")]
    if cost(channels) < cost(channels.taken(order)):
        order = np.arange(len(order))
    parts = [
        np.take(part, own % size, axis=-2)
        for own, part in zip(np.split(order, groups), np.split(weight, groups, axis=-1), strict=True)
    ]
    walk.reads.append({place: i // size for i, place in enumerate(channels.places)})
    tensor = walk.written(channels.taken(order))
    return walk.emit(node, [tensor, constant(np.concatenate(parts, axis=-1))])


def _taken(weight: np.ndarray, order: np.ndarray, axis: int) -> Value:
    return constant(np.take(weight, order, axis=axis))
