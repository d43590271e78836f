"""Reductions as the bodies of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod

from tvm import te, tirx

from host.lowering.expressions.stage import Element, Expression, Indices, Stage
from host.lowering.expressions.whole_vectors import WholeVectors
from host.lowering.graph import Node
from host.lowering.types import numeric_type

_product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="prod")
COMBINE: dict[str, Callable[..., Expression]] = {
    "sum": te.sum,
    "max": te.max,
    "min": te.min,
    "prod": _product,
}
# What a reduction does not notice among the elements of a row, which are in single precision. A row may be
# nothing but infinities.
_NEUTRAL = {"sum": 0.0, "max": -inf, "min": inf, "prod": 1.0}


def scaled(total: Expression, count: int, dtype: str) -> Expression:
    """A mean out of a sum."""
    if numeric_type(dtype).is_integer:
        return tirx.truncdiv(total, tirx.const(count, dtype))
    return total * tirx.const(1.0 / count, dtype)


def reduced_row(stage: Stage, sizes: Sequence[int], dtype: str, element: Element, kind: str) -> Element:
    """A reduction over the last axes of what `element` reads, as the body of a block.

    Args:
        stage: of the function.
        sizes: extents of the reduced axes.
        dtype: of the elements.
        element: takes the indices of the block and then those of the reduced axes.
        kind: "sum", "max", "min" or "prod".
    """
    combine, vectors = COMBINE[kind], WholeVectors(stage, prod(sizes), dtype)
    if stage.any_length or vectors.length == prod(sizes):
        axes = [te.reduce_axis((0, size), f"k{i}") for i, size in enumerate(sizes)]
        # A reduction is the whole of its expression: names for shared values go inside.
        return lambda i: combine(stage.scoped(lambda: element([*i, *axes])), axis=axes)
    k = te.reduce_axis((0, vectors.length), "k")
    # Either side of a condition names what it shares for itself.
    read = vectors.filled(
        lambda i: stage.scoped(lambda: element([*i[:-1], *_apart(i[-1], sizes)])),
        tirx.const(_NEUTRAL[kind], dtype),
    )
    return lambda i: combine(read([*i, k]), axis=[k])


def _apart(position: Expression, sizes: Sequence[int]) -> Indices:
    """Indices along several axes of a position along all of them."""
    if len(sizes) == 1:
        return [position]
    return [*_apart(position // sizes[-1], sizes[:-1]), position % sizes[-1]]


def row_sum(stage: Stage, node: Node, element: Element, name: str) -> te.Tensor:
    """A block of the sums of `element` over the last dimension, or the last `dims`, of the node's input."""
    value, dims = node.inputs[0], node.attrs.get("dims", 1)
    body = reduced_row(stage, value.shape[-dims:], value.dtype, element, "sum")
    return stage.compute(value.shape[:-dims], body, name)
