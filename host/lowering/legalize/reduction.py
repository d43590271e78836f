"""Reductions over given axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm import te, tirx

from host.lowering.expressions.stage import Element, Expression, Indices, Stage, load
from host.lowering.expressions.whole_vectors import WholeVectors
from host.lowering.graph import Node

_product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="prod")
_COMBINE: dict[str, Callable[..., Expression]] = {
    "sum": te.sum,
    "max": te.max,
    "min": te.min,
    "prod": _product,
}
# What a reduction does not notice among the elements of a row.
_NEUTRAL: dict[str, Callable[[str], Expression]] = {
    "sum": lambda dtype: tirx.const(0, dtype),
    "max": tirx.min_value,
    "min": tirx.max_value,
    "prod": lambda dtype: tirx.const(1, dtype),
}


def reduce(stage: Stage, node: Node) -> None:
    """sum, mean, max, min, prod: one block of that name ("sum" for mean)."""
    value, axes = node.inputs[0], node.attrs["axes"]
    if node.op == "variance":
        _variance(stage, node)
        return
    kind = "sum" if node.op == "mean" else node.op
    result = _reduced(stage, node, lambda i: stage.element(value, i), kind, kind)
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


def _reduced(stage: Stage, node: Node, element: Element, kind: str, name: str) -> te.Tensor:
    """A block that reduces `element`, which takes an index for each axis of the node's input."""
    value, keepdims = node.inputs[0], node.attrs["keepdims"]
    rank, axes = len(value.shape), sorted(node.attrs["axes"])
    kept = rank - len(axes)
    if axes and axes[0] == kept:
        row = reduced_row(stage, value.shape[kept:], value.dtype, element, kind)
        return stage.compute(node.output.shape, lambda indices: row(indices[:kept]), name)
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
        return _COMBINE[kind](stage.scoped(lambda: element(source)), axis=list(reduced.values()))

    return stage.compute(node.output.shape, body, name)


def reduced_row(stage: Stage, sizes: Sequence[int], dtype: str, element: Element, kind: str) -> Element:
    """A reduction over the last axes of what `element` reads, as the body of a block.

    Args:
        stage: of the function.
        sizes: extents of the reduced axes.
        dtype: of the elements.
        element: takes the indices of the block and then those of the reduced axes.
        kind: "sum", "max", "min" or "prod".
    """
    combine, vectors = _COMBINE[kind], WholeVectors(stage, prod(sizes), dtype)
    if stage.any_length or vectors.length == prod(sizes):
        axes = [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate(sizes)]
        # A reduction is the whole of its expression: names for shared values go inside.
        return lambda i: combine(stage.scoped(lambda: element([*i, *axes])), axis=axes)
    k = te.reduce_axis((0, vectors.length), "k")
    # Either side of a condition names what it shares for itself.
    read = vectors.filled(
        lambda i: stage.scoped(lambda: element([*i[:-1], *_apart(i[-1], sizes)])), _NEUTRAL[kind](dtype)
    )
    return lambda i: combine(read([*i, k]), axis=[k])


def _apart(position: Expression, sizes: Sequence[int]) -> Indices:
    """Indices along several axes of a position along all of them."""
    if len(sizes) == 1:
        return [position]
    return [*_apart(position // sizes[-1], sizes[:-1]), position % sizes[-1]]


def _variance(stage: Stage, node: Node) -> None:
    """Mean square distance from the mean, in two passes."""
    value, axes = node.inputs[0], node.attrs["axes"]
    count = prod(value.shape[axis] for axis in axes)
    total = _reduced(stage, node, lambda i: stage.element(value, i), "sum", "sum")

    def squared(indices: Indices) -> Expression:
        if node.attrs["keepdims"]:
            place = [0 if axis in axes else i for axis, i in enumerate(indices)]
        else:
            place = [i for axis, i in enumerate(indices) if axis not in axes]
        distance = stage.element(value, indices) - scaled(load(total, place), count, value.dtype)
        return distance * distance

    result = _reduced(stage, node, squared, "sum", "square_sum")
    stage.define(node.output, lambda i: scaled(load(result, i), count, value.dtype))
