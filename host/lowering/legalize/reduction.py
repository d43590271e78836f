"""Reductions over given axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import te, tirx

from host.lowering.graph import Node, Value
from host.lowering.legalize.stage import Expression, Indices, Stage, load

_Combine = Callable[..., Expression]

_product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="prod")
_COMBINE: dict[str, _Combine] = {
    "sum": te.sum,
    "mean": te.sum,
    "max": te.max,
    "min": te.min,
    "prod": _product,
}


def reduce(stage: Stage, node: Node) -> None:
    """sum, mean, max, min, prod: one block of that name ("sum" for mean)."""
    value, axes = node.inputs[0], node.attrs["axes"]
    if node.op == "variance":
        _variance(stage, node)
        return
    name = "sum" if node.op == "mean" else node.op
    result = _reduced(stage, value, axes, node, lambda i: stage.element(value, i), _COMBINE[node.op], name)
    if node.op == "mean":
        count = prod(value.shape[axis] for axis in axes)
        stage.define(node.output, lambda i: scaled(load(result, i), count, value.dtype))
    else:
        stage.define_tensor(node.output, result)


def scaled(total: Expression, count: int, dtype: str) -> Expression:
    """A mean out of a sum."""
    if dtype.startswith(("int", "uint")):
        return tirx.truncdiv(total, tirx.const(count, dtype))
    return total * tirx.const(1.0 / count, dtype)


def _reduced(
    stage: Stage,
    value: Value,
    axes: Sequence[int],
    node: Node,
    element: Callable[[list[Any]], Expression],
    combine: _Combine,
    name: str,
) -> te.Tensor:
    rank, keepdims = len(value.shape), node.attrs["keepdims"]
    reduced = {axis: te.reduce_axis((0, value.shape[axis]), f"k{axis}") for axis in axes}

    def body(indices: Indices) -> Expression:
        outer = iter(indices)
        source = []
        for axis in range(rank):
            if axis in reduced:
                source.append(reduced[axis])
                if keepdims:
                    next(outer)
            else:
                source.append(next(outer))
        if not reduced:
            return element(source)
        # A reduction is the whole of its expression: names for shared values go inside.
        return combine(stage.scoped(lambda: element(source)), axis=list(reduced.values()))

    return stage.compute(node.output.shape, body, name)


def _variance(stage: Stage, node: Node) -> None:
    """Mean square distance from the mean, in two passes."""
    value, axes = node.inputs[0], node.attrs["axes"]
    count = prod(value.shape[axis] for axis in axes)
    total = _reduced(stage, value, axes, node, lambda i: stage.element(value, i), te.sum, "sum")

    def squared(indices: list[Any]) -> Expression:
        if node.attrs["keepdims"]:
            place = [0 if axis in axes else i for axis, i in enumerate(indices)]
        else:
            place = [i for axis, i in enumerate(indices) if axis not in axes]
        distance = stage.element(value, indices) - scaled(load(total, place), count, value.dtype)
        return distance * distance

    result = _reduced(stage, value, axes, node, squared, te.sum, "square_sum")
    stage.define(node.output, lambda i: scaled(load(result, i), count, value.dtype))
