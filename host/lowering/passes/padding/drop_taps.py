"""Kernels without the outer taps that read nothing but padding at every output position.

A convolution that is dilated by more than the size of its image has such taps; where only the centre is left,
the convolution becomes a dense product. Pooling whose window is larger than the image has such
taps too: some files pool images as a whole by a window as large as the number of channels.
"""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild


def drop_taps(graph: Graph) -> Graph:
    """An equal graph whose convolutions and pooling have no outer taps that read padding alone."""

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        result = None
        if node.op == "conv":
            result = _smaller(builder, node, inputs)
        elif node.op == "pool":
            result = _smaller_window(builder, node, inputs)
        return builder.copy(node, inputs) if result is None else result

    return rebuild(graph, rule)


def _smaller(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    weight, rank, padding = inputs[1], len(node.attrs["strides"]), node.attrs["padding"]
    if weight.data is None or not node.output.is_float:
        return None
    kept, before, after = [], [], []
    for d in range(rank):
        taps, dilation = weight.shape[d], node.attrs["dilation"][d]
        reading = [tap for tap in range(taps) if _reads(node, d, tap)]
        first, last = (reading[0], reading[-1]) if reading else (0, taps - 1)
        kept.append(slice(first, last + 1))
        before.append(padding[d] - first * dilation)
        after.append(padding[rank + d] - (taps - 1 - last) * dilation)
    data = weight.data[tuple(kept)]
    if data.shape == weight.shape or min(*before, *after) < 0:
        return None
    attrs = {**node.attrs, "padding": (*before, *after)}
    return builder.one("conv", [inputs[0], constant(data)], node.output.shape, node.output.dtype, **attrs)


def _smaller_window(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Pooling whose windows end where the first one leaves the image, the last that has taps beyond.

    An average that counts padding keeps the taps that read the padding of the file.
    """
    attrs, spatial = node.attrs, node.inputs[0].shape[1:-1]
    kernel = []
    for d, (taps, size) in enumerate(zip(attrs["kernel"], spatial, strict=True)):
        counted = attrs["padding"][len(spatial) + d] if attrs["count_pad"] else 0
        last = (size - 1 + attrs["padding"][d] + counted) // attrs["dilation"][d]
        kernel.append(min(taps, last + 1))
    if tuple(kernel) == tuple(attrs["kernel"]):
        return None
    smaller = {**attrs, "kernel": tuple(kernel)}
    return builder.one("pool", list(inputs), node.output.shape, node.output.dtype, **smaller)


def _reads(node: Node, d: int, tap: int) -> bool:
    """Whether a tap reads the image at any output position of spatial dimension `d`."""
    origin = tap * node.attrs["dilation"][d] - node.attrs["padding"][d]
    stride, size = node.attrs["strides"][d], node.inputs[0].shape[1 + d]
    return any(0 <= origin + position * stride < size for position in range(node.output.shape[1 + d]))
