"""The same elements in another shape."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, Value, reshape_groups
from host.lowering.passes.permutations.channels import Channels
from host.lowering.passes.permutations.sink_permutations import PermutationWalk
from host.lowering.passes.sink_transposes import Ordered, TransposeWalk, inverse
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value:
    return builder.reshape(call.value(0), call.shape)


def _write(stage: Stage, node: Node) -> None:
    """Reads at the same place in memory order."""
    old, new = node.inputs[0].shape, node.output.shape
    groups = reshape_groups(old, new)

    def element(indices: Indices) -> Expression:
        source: list[Any] = [0] * len(old)
        for old_axes, new_axes in groups or [(list(range(len(old))), list(range(len(new))))]:
            place = _ravel([indices[a] for a in new_axes], [new[a] for a in new_axes])
            for axis, index in zip(old_axes, _unravel(place, [old[a] for a in old_axes]), strict=True):
                source[axis] = index
        return stage.element(node.inputs[0], source)

    stage.define(node.output, element)


def _ravel(indices: Indices, shape: Sequence[int]) -> Any:
    place: Any = 0
    for index, size in zip(indices, shape, strict=True):
        if size != 1:
            place = index if isinstance(place, int) and place == 0 else place * size + index
    return place


def _unravel(place: Any, shape: Sequence[int]) -> list[Any]:
    result: list[Any] = []
    for axis, size in enumerate(shape):
        below, above = prod(shape[axis + 1 :]), prod(shape[:axis])
        index = place if below == 1 else place // below
        result.append(0 if size == 1 else index if above == 1 else index % size)
    return result


def _sink_transpose(walk: TransposeWalk, node: Node) -> Ordered | None:
    """A reshape that joins or splits dimensions which stay neighbours in the unordered tensor."""
    source = node.inputs[0]
    while source.producer is not None and source.producer.op == "reshape":
        # A view of a view: dimensions that the first one joins may be those that the second one splits.
        source = source.producer.inputs[0]
    ordered = walk.get(source)
    if ordered.is_plain:
        return None
    groups = reshape_groups(source.shape, node.output.shape)
    if groups is None:
        return None
    placed = []
    for old_axes, new_axes in groups:
        sources = [ordered.order[axis] for axis in old_axes if source.shape[axis] != 1]
        if any(not _only_units(ordered.tensor, a, b) for a, b in itertools.pairwise(sources)):
            return None
        placed.append((sources[0] if sources else -1, new_axes))
    placed.sort(key=lambda item: item[0])
    sequence = [axis for _, axes in placed for axis in axes]
    shape = [node.output.shape[axis] for axis in sequence]
    return Ordered(walk.builder.reshape(ordered.tensor, shape), inverse(sequence))


def _only_units(tensor: Value, first: int, second: int) -> bool:
    return second > first and all(tensor.shape[axis] == 1 for axis in range(first + 1, second))


def _sink_permutation(walk: PermutationWalk, node: Node) -> Channels | None:
    """A view of other dimensions than the channels is one of each tensor that has some of these."""
    value, shape = node.inputs[0], node.output.shape
    if not walk.is_moved(value) or value.shape[-1:] != shape[-1:]:
        return None
    return walk.viewed(walk.channels(value), shape[:-1])


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "reshape",
        read={
            "reshape": _read,
            "flatten": _read,
            "squeeze": _read,
            "expand_dims": _read,
            "nn.batch_flatten": _read,
        },
        write=_write,
        fold=lambda inputs, attrs, shape, dtype: inputs[0].reshape(shape),
        sink_transpose=_sink_transpose,
        # What it shows is what it becomes.
        sink_reshape=lambda walk, node: walk.tensor(node.inputs[0]),
        sink_permutation=_sink_permutation,
    ),
)
