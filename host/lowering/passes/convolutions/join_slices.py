"""Convolutions of volumes become convolutions of images where Winograd's algorithm then pays.

A result of a 3x3x3 convolution is the sum over three neighbouring slices. Side by side, the channels of these
slices are the channels of one image:

conv3d(x, w)[d] = conv2d(concat(x[d], x[d + 1], x[d + 2]), concat(w[0], w[1], w[2]))

Three copies of the input are written, which costs less than what the algorithm saves.
"""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.passes.pack_weights import lanes_for
from host.lowering.passes.sink_reshapes import sink_reshapes
from host.lowering.rebuild import rebuild
from host.lowering.winograd.choice import Shape, best_tile, direct_seconds, winograd_seconds
from targets import HardwareModel

# The kind of decision: 1: a convolution of a volume is computed as one of images.
SLICES = "slices"


def join_slices(graph: Graph, hardware: HardwareModel, choices: Choices | None = None) -> Graph:
    """A graph whose 3x3x3 convolutions with stride 1 are computed as images where that is faster.

    Args:
        graph: before its weights are packed.
        hardware: what the estimate is made for; nothing is changed for a GPU.
        choices: of a plan, which may decide otherwise than the estimate.
    """
    taken = choices or Choices()
    joined = {node for node in graph.nodes if hardware.gpu is None and _joins(node, hardware, taken)}
    if not joined:
        return graph

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node not in joined:
            return builder.copy(node, inputs)
        return _as_images(builder, node, inputs)

    # What follows the convolution is then computed with it, and not behind a view.
    return sink_reshapes(rebuild(graph, rule))


def _joins(node: Node, hardware: HardwareModel, choices: Choices) -> bool:
    """Whether a convolution becomes one of images."""
    if not _is_possible(node, hardware):
        return False
    sizes = "x".join(map(str, node.output.shape))
    alike = f"{sizes} of {node.inputs[1].shape[3]} channels"
    return bool(choices.take(SLICES, node, (0, 1), int(_pays(node, hardware)), alike))


def _is_possible(node: Node, hardware: HardwareModel) -> bool:
    """Whether a convolution is one of volumes that can be computed as one of images."""
    if node.op != "conv" or len(node.output.shape) != 5 or node.output.dtype != "float32":
        return False
    weight, plain = node.inputs[1], (*node.attrs["strides"], *node.attrs["dilation"])
    if weight.data is None or weight.shape[:3] != (3, 3, 3) or any(step != 1 for step in plain):
        return False
    if node.attrs["groups"] != 1 or "taps" in node.attrs or 0 in node.output.shape:
        return False
    if weight.shape[3] % hardware.lanes:
        # Slices are copied in whole vectors of channels.
        return False
    channels_out = node.output.shape[-1]
    return channels_out % lanes_for(channels_out, hardware.lanes, hardware.halves_vectors) == 0


def _pays(node: Node, hardware: HardwareModel) -> bool:
    """Whether such a convolution is faster as one of images, with the copies."""
    weight = node.inputs[1]
    batch, depth, height, width, channels_out = node.output.shape
    lanes = lanes_for(channels_out, hardware.lanes, hardware.halves_vectors)
    shape = Shape(batch * depth, height, width, 3 * weight.shape[3], channels_out, lanes)
    tile = best_tile(shape, hardware)
    if tile is None:
        return False
    # Each element is read once, and written and read again three times.
    size = 4 * shape.batch * height * width * shape.channels_in
    copies_s = (1 / 3 + 2) * size / hardware.level_of(size).bandwidth_bytes_per_s
    return winograd_seconds(shape, tile, hardware) + copies_s < direct_seconds(shape, hardware)


def _as_images(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value:
    data, weight = inputs[0], inputs[1].data
    assert weight is not None
    top_d, top_h, top_w, bottom_d, bottom_h, bottom_w = node.attrs["padding"]
    batch, depth, _, _, channels_out = node.output.shape
    padded = builder.pad(data, (0, top_d, 0, 0, 0), (0, bottom_d, 0, 0, 0), 0.0)
    _, _, height, width, channels = padded.shape
    slices = (batch, depth, height, width, channels)
    parts = [builder.slice(padded, (0, first, 0, 0, 0), slices, (1,) * 5) for first in range(3)]
    joined = builder.one("concat", parts, (*slices[:-1], 3 * channels), data.dtype, axis=4)
    images = builder.reshape(joined, (batch * depth, height, width, 3 * channels))
    taps = np.ascontiguousarray(np.moveaxis(weight, 0, 2)).reshape(3, 3, 3 * channels, channels_out)
    attrs = {
        **node.attrs,
        "strides": (1, 1),
        "dilation": (1, 1),
        "padding": (top_h, top_w, bottom_h, bottom_w),
    }
    shape = (batch * depth, *node.output.shape[2:])
    result = builder.one("conv", [images, constant(taps)], shape, node.output.dtype, **attrs)
    return builder.reshape(result, node.output.shape)
