"""Elements along an axis in another order: element i is that at order[i]; attributes `axis` and `order`.

`sink_permutations` leaves none of these operations.
"""

from __future__ import annotations

import numpy as np

from host.lowering.graph import Node
from host.lowering.passes.permutations.channels import Channels, reordered
from host.lowering.passes.permutations.recognise import recognise_permutations
from host.lowering.passes.permutations.sink_permutations import PermutationWalk
from host.lowering.passes.sink_transposes import Ordered, TransposeWalk
from host.lowering.spec import GraphPass, OpSpec, Phase


def _sink_transpose(walk: TransposeWalk, node: Node) -> Ordered | None:
    ordered = walk.get(node.inputs[0])
    return walk.emit(node, [ordered.tensor], ordered.order, axis=ordered.order[node.attrs["axis"]])


def _sink_permutation(walk: PermutationWalk, node: Node) -> Channels:
    value, axis, order = node.inputs[0], node.attrs["axis"], node.attrs["order"]
    if axis == len(value.shape) - 1:
        return walk.channels(value).taken(order)
    # Of an axis that was none of channels after all.
    return Channels.of(reordered(walk.builder, walk.plain(value), np.array(order), axis))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "permute",
        passes=(GraphPass(Phase.READ, lambda graph, hardware: recognise_permutations(graph)),),
        fold=lambda inputs, attrs, shape, dtype: np.take(inputs[0], attrs["order"], axis=attrs["axis"]),
        sink_transpose=_sink_transpose,
        sink_permutation=_sink_permutation,
    ),
)
