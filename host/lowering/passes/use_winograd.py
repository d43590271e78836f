"""Turns packed convolutions into "winograd_conv" where that is estimated to be faster."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.fusion import fuse
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild
from host.lowering.winograd.choice import Shape, best_tile
from host.lowering.winograd.transforms import TILES
from targets import HardwareModel

ALGORITHM = "algorithm"
# The option of a convolution that is computed as it is written; others are sides of tiles.
_DIRECT = 0
# Convolutions with packed weights, in vectors of single precision or in those of halves.
_SINGLE, _HALF = "packed_conv", "half_conv"


def use_winograd(
    graph: Graph, hardware: HardwareModel, outputs: int | None = None, choices: Choices | None = None
) -> Graph:
    """A graph whose 3x3 convolutions with stride 1 are computed by tiles where that pays; never on a GPU.

    Tiles are computed in single precision, those of a convolution of halves too: a quarter of the products
    is less than half as many instructions.

    "winograd_conv" has the attributes of the convolution and `outputs`, results along each side of a tile;
    its weights are [O / L, C, 3, 3, L]: what one vector of transformed weights is made of lies together.

    Args:
        graph: with "packed_conv" and "half_conv" nodes.
        hardware: what the estimate is made for.
        outputs: the size of every tile instead of the one with the best estimate.
        choices: of a plan, which may take another algorithm than the estimate.
    """
    if hardware.gpu is not None:
        return graph
    taken = choices or Choices()
    turned = _turned(graph, taken)
    arranged: dict[Value, Value] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        shape = None if node in turned else winograd_shape(node, hardware)
        tile = None if shape is None else outputs or _tile(node, shape, hardware, taken)
        weight = inputs[1].data if tile is not None else None
        if shape is None or tile is None or weight is None:
            return builder.copy(node, inputs)
        if inputs[1] not in arranged:
            arranged[inputs[1]] = constant(_by_channels(weight, shape.lanes))
        specs = [(node.output.shape, node.output.dtype)]
        attrs = {**node.attrs, "outputs": tile}
        attrs.pop("block", None)
        return builder.emit("winograd_conv", [inputs[0], arranged[inputs[1]]], attrs, specs)

    return rebuild(graph, rule)


def _by_channels(weight: np.ndarray, lanes: int) -> np.ndarray:
    """Packed weights [O / (V L), 3, 3, C, V L] as [O / L, C, 3, 3, L]."""
    blocks, *kernel, channels, wide = weight.shape
    vectors = wide // lanes
    parts = weight.reshape(blocks, *kernel, channels, vectors, lanes).transpose(0, 4, 3, 1, 2, 5)
    return np.ascontiguousarray(parts.reshape(blocks * vectors, channels, *kernel, lanes))


def _tile(node: Node, shape: Shape, hardware: HardwareModel, choices: Choices) -> int | None:
    """Results along each side of a tile; None for the direct convolution."""
    if node.inputs[1].data is None:
        return None
    own = best_tile(shape, hardware, node.attrs.get("block", 0)) or _DIRECT
    alike = f"{shape.batch}x{shape.height}x{shape.width}, {shape.channels_in} to {shape.channels_out}"
    return choices.take(ALGORITHM, node, (_DIRECT, *TILES), own, alike) or None


def _turned(graph: Graph, choices: Choices) -> set[Node]:
    """Anchors of functions in which something is transposed behind them.

    The rule makes results in the order of the tiles: with a transpose behind them they would be scattered.
    """
    found = set()
    for group in fuse(graph, choices.fresh()):
        if group.anchor is not None:
            behind = group.nodes[group.nodes.index(group.anchor) + 1 :]
            if any(node.op == "transpose" for node in behind):
                found.add(group.anchor)
    return found


def winograd_shape(node: Node, hardware: HardwareModel) -> Shape | None:
    """The shape of a convolution that the algorithm applies to, else None."""
    if node.op not in (_SINGLE, _HALF) or len(node.output.shape) != 4 or node.output.dtype != "float32":
        return None
    blocks, *kernel, channels_in, packed = node.inputs[1].shape
    batch, height, width, channels_out = node.output.shape
    plain = all(step == 1 for step in (*node.attrs["strides"], *node.attrs["dilation"]))
    if (
        kernel != [3, 3]
        or "taps" in node.attrs
        or not plain
        or blocks * packed != channels_out
        or 0 in node.output.shape
    ):
        return None
    lanes = hardware.lanes if node.op == _HALF else packed
    return Shape(batch, height, width, channels_in, channels_out, lanes)
