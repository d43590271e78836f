"""Operations that only move elements, as formulas of indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import tirx

from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, reshape_groups
from host.lowering.passes.sink_transposes import inverse


def transpose(stage: Stage, node: Node) -> None:
    """Reads with the indices in the other order."""
    back = inverse(node.attrs["axes"])
    stage.define(node.output, lambda i: stage.element(node.inputs[0], [i[axis] for axis in back]))


def reshape(stage: Stage, node: Node) -> None:
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


def slice_(stage: Stage, node: Node) -> None:
    """Reads at begin + stride * index."""
    begin, strides = node.attrs["begin"], node.attrs["strides"]

    def element(indices: Indices) -> Expression:
        source = [
            b + s * i if s != 1 else (i + b if b else i)
            for b, s, i in zip(begin, strides, indices, strict=True)
        ]
        return stage.element(node.inputs[0], source)

    stage.define(node.output, element)


def pad(stage: Stage, node: Node) -> None:
    """The fill value outside, the input inside."""
    value, before, after = node.inputs[0], node.attrs["before"], node.attrs["after"]

    def element(indices: Indices) -> Expression:
        tests, source = [], []
        for i, b, a, size in zip(indices, before, after, value.shape, strict=True):
            source.append(i - b if b else i)
            tests += [i >= b] if b else []
            tests += [i < b + size] if a else []
        fill = node.attrs["value"] if value.is_float else int(node.attrs["value"])
        return tirx.if_then_else(
            tirx.all(*tests),
            stage.scoped(lambda: stage.element(value, source)),
            tirx.const(fill, value.dtype),
        )

    stage.define(node.output, element)


def concat(stage: Stage, node: Node) -> None:
    """Chooses the part that an index falls into."""
    axis = node.attrs["axis"]

    def element(indices: Indices) -> Expression:
        ends, end = [], 0
        for part in node.inputs:
            end += part.shape[axis]
            ends.append(end)

        def read(which: int) -> Expression:
            start = ends[which - 1] if which else 0
            source = [i - start if a == axis and start else i for a, i in enumerate(indices)]
            return stage.scoped(lambda: stage.element(node.inputs[which], source))

        result = read(len(node.inputs) - 1)
        for which in reversed(range(len(node.inputs) - 1)):
            result = tirx.if_then_else(indices[axis] < ends[which], read(which), result)
        return result

    stage.define(node.output, element)


def take(stage: Stage, node: Node) -> None:
    """Reads where the index tensor says."""
    data, positions = node.inputs
    axis, rank, size = node.attrs["axis"], len(node.inputs[1].shape), node.inputs[0].shape[node.attrs["axis"]]

    def element(indices: Indices) -> Expression:
        index = tirx.Cast("int32", stage.element(positions, indices[axis : axis + rank]))
        if node.attrs["mode"] == "clip":
            index = tirx.max(tirx.min(index, size - 1), 0)
        elif node.attrs["mode"] == "wrap":
            index = tirx.floormod(index, size)
        return stage.element(data, [*indices[:axis], index, *indices[axis + rank :]])

    stage.define(node.output, element)


def interleave(stage: Stage, node: Node) -> None:
    """Output position o comes from part o mod stride, at o div stride; parts in row-major order."""
    strides = node.attrs["strides"]

    def element(indices: Indices) -> Expression:
        n, *position, c = indices
        source = [n, *(o // s if s != 1 else o for o, s in zip(position, strides, strict=True)), c]

        def choose(d: int, first: int) -> Expression:
            """Among the parts from `first` on that differ in dimension `d` and later ones."""
            if d == len(strides):
                return stage.element(node.inputs[first], source)
            step = prod(
                min(s, o) for s, o in zip(strides[d + 1 :], node.output.shape[d + 2 : -1], strict=True)
            )
            count = min(strides[d], node.output.shape[d + 1])
            result = choose(d + 1, first + (count - 1) * step)
            for q in reversed(range(count - 1)):
                part = choose(d + 1, first + q * step)
                result = tirx.if_then_else(position[d] % strides[d] == q, part, result)
            return result

        return choose(0, 0)

    stage.define(node.output, element)


def dilate(stage: Stage, node: Node) -> None:
    """Zeros between the elements."""
    strides = node.attrs["strides"]

    def element(indices: Indices) -> Expression:
        spread = [(i, s) for i, s in zip(indices, strides, strict=True) if s != 1]
        source = [i // s if s != 1 else i for i, s in zip(indices, strides, strict=True)]
        value = stage.scoped(lambda: stage.element(node.inputs[0], source))
        inside = tirx.all(*(i % s == 0 for i, s in spread))
        return tirx.if_then_else(inside, value, tirx.const(0, node.output.dtype))

    stage.define(node.output, element)
