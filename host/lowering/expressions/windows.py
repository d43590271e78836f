"""Windows over images, and products, as expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from host.lowering.expressions.stage import Expression, Indices, Stage, dtype_of, load
from host.lowering.graph import Node, Value


def window(node: Node, spatial: Indices, axes: Indices) -> list[Any]:
    """Input coordinates of a kernel element at an output position."""
    steps = zip(spatial, axes, node.attrs["strides"], node.attrs["dilation"], strict=True)
    return [
        (o if s == 1 else o * s) + (r if d == 1 else r * d) if not _is_point(r) else (o if s == 1 else o * s)
        for o, r, s, d in steps
    ]


def _is_point(axis: Any) -> bool:
    return int(axis.dom.extent) == 1


def reached_padding(node: Node) -> tuple[int, ...]:
    """Padding so that the last window is inside; rounding up the output size can ask for more than given."""
    before, after = [], []
    for d, kernel in enumerate(node.attrs["kernel"]):
        last = (node.output.shape[1 + d] - 1) * node.attrs["strides"][d]
        reach = last + (kernel - 1) * node.attrs["dilation"][d] + 1
        before.append(node.attrs["padding"][d])
        after.append(max(reach - node.inputs[0].shape[1 + d] - before[-1], 0))
    return (*before, *after)


def product(left: Expression, right: Expression, dtype: str) -> Expression:
    """A product in the type of the sum: bytes are widened first."""
    factors = [part if dtype_of(part) == dtype else part.astype(dtype) for part in (left, right)]
    return factors[0] * factors[1]


def padded_input(
    stage: Stage,
    node: Node,
    fill: float = 0.0,
    dtype: str = "",
    padding: Sequence[int] | None = None,
) -> Callable[..., Expression]:
    """The input with its padding around it (block "pad_temp"), or as it is if there is none.

    The input has a batch, spatial axes, and channels unless each image has one.
    Its elements are of type `dtype`, or of their own where that is "". Negative padding leaves out what lies
    at an edge of the input.

    Args:
        stage: of the function that is written.
        node: which reads it.
        fill: what the padding holds.
        dtype: as above.
        padding: before and after each spatial axis; that of the node where it is left out.
    """
    value, padding = node.inputs[0], node.attrs["padding"] if padding is None else padding
    dtype = dtype or value.dtype
    half = len(padding) // 2
    before, after = padding[:half], padding[half:]
    whole: Callable[..., Expression]
    if max(padding) <= 0:
        whole = stage.tensor_as(value, dtype, "pad_temp")
        if not any(padding):
            return whole
        return lambda n, *rest: whole(
            n, *(i - b if b else i for i, b in zip(rest[:half], before, strict=True)), *rest[half:]
        )
    spatial, channels = value.shape[1 : 1 + half], value.shape[1 + half :]
    shape = [b + d + a for b, d, a in zip(before, spatial, after, strict=True)]

    def element(indices: Indices) -> Expression:
        n, position, channel = indices[0], indices[1 : 1 + half], indices[1 + half :]
        source = [i if b == 0 else i - b for i, b in zip(position, before, strict=True)]
        x = stage.scoped(lambda: stage.element_as(value, [n, *source, *channel], dtype))
        tests = []
        for i, b, a, d in zip(position, before, after, spatial, strict=True):
            tests += [i >= b] if b > 0 else []
            tests += [i < b + d] if a > 0 else []
        return tirx.if_then_else(tirx.all(*tests), x, tirx.const(fill, dtype))

    whole = stage.compute((value.shape[0], *shape, *channels), element, "pad_temp")
    return whole


def finish(stage: Stage, value: Value, tensor: te.Tensor) -> None:
    """Padded columns are left out wherever the result is read."""
    if tuple(int(d) for d in tensor.shape) == value.shape:
        stage.define_tensor(value, tensor)
    else:
        stage.define(value, lambda indices: load(tensor, indices))
