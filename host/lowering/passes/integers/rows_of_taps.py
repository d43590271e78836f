"""Depthwise convolutions of bytes by dot products: the rows of a window side by side in each lane.

VPDPBUSD and SDOT add four products of bytes to each 32-bit lane. The bytes of four rows of the image at one
position and channel go to one lane, so one instruction multiplies four taps of 16 or of 4 channels. A band of
output rows shares these groups of rows: two rows of a 3x3 window read four rows of the image, which is one
group, and four rows of a 5x5 window read eight. Taps that a row does not have are zeros in the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild
from targets import HardwareModel

OPERATION = "integer_depthwise_conv"
# The kind of decision: 1: a depthwise convolution of bytes is a sum of dot products.
TAPS = "taps"
# The dot products whose operands may both differ by lane, four bytes of each, and the fewest lanes of one.
_KINDS, _GROUP, _FEWEST_LANES = ("u8s8", "s8s8"), 4, 4
# Output rows of a band, and what putting a group of four rows together costs in dot products (on a Xeon of
# the fifth generation 2.3 cycles, with two dot products a cycle).
_BANDS = (1, 2, 4)
_INTERLEAVING = 5.0


@dataclass(frozen=True)
class Band:
    """Output rows that are computed together.

    Attributes:
        rows: of the output.
        step: rows of the image from one band to the next.
        apart: rows of the image from one tap of a group to the next.
        groups: of four rows of the image that the rows of a band read.
        count: bands, the last of which may reach beyond the output.
    """

    rows: int
    step: int
    apart: int
    groups: int
    count: int


def band_of(node: Node, taps: tuple[int, int], group: int) -> Band:
    """The bands in which a convolution takes the fewest instructions.

    Args:
        node: with strides and dilation as attributes, channels last.
        taps: of the window, down and across.
        group: bytes of a lane.
    """
    (stride, across), (apart, _) = node.attrs["strides"], node.attrs["dilation"]
    height = node.output.shape[1]
    found: list[tuple[float, Band]] = []
    # Rows of a dilated window lie apart, so the next row of the output shares none of them.
    for rows in _BANDS if apart == 1 else _BANDS[:1]:
        groups = -(-((rows - 1) * stride + taps[0]) // group)
        count = -(-height // rows)
        each = groups * (taps[1] + _INTERLEAVING * min(across, taps[1]) / rows)
        found.append((each * rows * count, Band(rows, rows * stride, apart, groups, count)))
    return min(found, key=lambda entry: entry[0])[1]


def lanes_of(channels: int, lanes: int) -> int:
    """Lanes of the longest vectors that divide the channels; 0 where those are shorter than any register."""
    while channels % lanes:
        lanes //= 2
    return lanes if lanes >= _FEWEST_LANES else 0


def use_rows_of_taps(graph: Graph, hardware: HardwareModel, choices: Choices | None = None) -> Graph:
    """An equal graph whose depthwise convolutions of bytes are sums of dot products where they can be.

    Args:
        graph: with weights as the model has them.
        hardware: that has the dot product.
        choices: of a plan, which may leave a convolution as it is.
    """
    taken = choices or Choices()
    if hardware.gpu is not None or hardware.dot_product not in _KINDS:
        return graph

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op != "depthwise_conv" or not _fits(node, hardware) or not _in_dots(node, taken):
            return builder.copy(node, inputs)
        assert inputs[1].data is not None
        weight = constant(inputs[1].data.astype(np.int8))
        return builder.emit(
            OPERATION, [inputs[0], weight], node.attrs, [(node.output.shape, node.output.dtype)]
        )[0]

    return rebuild(graph, rule)


def _in_dots(node: Node, choices: Choices) -> bool:
    sizes = "x".join(map(str, (*node.output.shape, *node.inputs[1].shape[:2], *node.attrs["strides"])))
    return bool(choices.take(TAPS, node, (0, 1), 1, sizes))


def _fits(node: Node, hardware: HardwareModel) -> bool:
    data, weight = node.inputs
    return (
        data.dtype in ("uint8", "int8")
        and weight.data is not None
        and len(weight.shape) == 3
        and weight.shape[-1] == data.shape[-1]
        and "taps" not in node.attrs
        and lanes_of(data.shape[-1], hardware.lanes) > 0
    )


def in_rows(node: Node, data: np.ndarray, hardware: HardwareModel) -> np.ndarray:
    """Weights [down, across, C] for the rows of a band, [C / L, rows, groups, across, L, 4].

    Args:
        node: the convolution.
        data: its weights, signed bytes.
        hardware: whose vectors have L lanes, or a part of them that divides the channels.
    """
    down, across, channels = data.shape
    band, lanes = band_of(node, (down, across), _GROUP), lanes_of(channels, hardware.lanes)
    packed = np.zeros((channels // lanes, band.rows, band.groups, across, lanes, _GROUP), np.int8)
    vectors = data.reshape(down, across, channels // lanes, lanes).transpose(0, 2, 1, 3)
    stride = band.step // band.rows
    for row in range(band.rows):
        for tap in range(down):
            place, byte = divmod(row * stride + tap, _GROUP)
            packed[:, row, place, :, :, byte] = vectors[tap]
    return packed
