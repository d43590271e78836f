"""Brings weights into the order in which a vector unit reads them.

Output channels are split into blocks of `lanes`, the innermost dimension; the kernel and the input
channels lie between. One packed weight is a contiguous stream for the innermost loops. Constant weights are
packed here. Weights of convolutions that the model computes (mixed experts, modulated weights, templates
of a tracker) are packed by operations of the graph, in each run.
"""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild

# The kind of decision: output channels side by side in a packed weight.
LANES = "lanes"
_NARROWEST = 4
# Blocks of a register tile that leave registers for several rows, and blocks to which one more adds little.
_TILES, _MANY_BLOCKS = (2, 3), 16
# More lanes than vectors have: the threads of a GPU.
_WARP = 32


def lanes_for(channels: int, lanes: int, halves: bool = False) -> int:
    """How many output channels lie side by side in a packed weight.

    The vector's lanes, the last block filled up, except where less is read and multiplied otherwise:
    for channels that fit into a part of a vector, and half a vector where it takes half the time, divides
    the channels and filling up would add more than a tenth (a quarter takes no less). A core without vectors
    gets blocks too: a tile of channels then reads one stream and not one for each.

    Args:
        channels: of the result.
        lanes: fp32 elements of the target's vector.
        halves: whether half a vector takes half the time, as of `HardwareModel.halves_vectors`.
    """
    lanes = max(lanes, _NARROWEST)
    filled = -(-channels // lanes) * lanes
    if halves and channels % (lanes // 2) == 0 and 10 * filled > 11 * channels:
        return lanes // 2
    width = lanes
    while width > _NARROWEST and channels <= width // 2:
        width //= 2
    return width


def pack_weights(graph: Graph, lanes: int, halves: bool = False, choices: Choices | None = None) -> Graph:
    """A graph whose convolutions and dense products read packed weights.

    Args:
        graph: with "conv" and "dense" nodes; the weights of the latter are constants.
        lanes: fp32 elements of the target's vector.
        halves: as of `lanes_for`.
        choices: of a plan, which may take another width; None where there is no choice.
    """
    packed: dict[tuple[Value, str, int, int], Value] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op not in ("conv", "dense"):
            return builder.copy(node, inputs)
        own = lanes_for(_columns(node), lanes, halves)
        width = own if choices is None else _width(node, own, lanes, choices)
        op, width = _form(node, lanes, width)
        groups = node.attrs.get("groups", 1)
        key = (inputs[1], op, groups, width)
        if key not in packed:
            packed[key] = _packed(builder, *key)
        specs = [(node.output.shape, node.output.dtype)]
        return builder.emit(op, [inputs[0], packed[key]], node.attrs, specs)

    return rebuild(graph, rule)


def _columns(node: Node) -> int:
    """Output channels among which the vectors of a packed weight are counted: those of a group."""
    groups: int = node.attrs.get("groups", 1)
    return node.inputs[1].shape[-1] // groups


def _width(node: Node, own: int, lanes: int, choices: Choices) -> int:
    """How many output channels lie side by side, by the plan."""
    groups = node.attrs.get("groups", 1)
    if groups > 1 and groups == node.inputs[0].shape[-1]:
        return own
    options = sorted({own, *(width for width in (lanes // 2, lanes) if width >= _NARROWEST)})
    shapes = ["x".join(map(str, shape)) for shape in (node.inputs[0].shape, node.inputs[1].shape)]
    alike = f"{node.op} of {' by '.join(shapes)}, {node.attrs.get('strides', ())}"
    return choices.take(LANES, node, options, own, alike)


def _form(node: Node, lanes: int, width: int) -> tuple[str, int]:
    """The operation that reads the packed weight, and how many output channels lie side by side in it."""
    if node.op == "dense":
        return "packed_dense", width
    groups = node.attrs["groups"]
    if groups == 1:
        return "packed_conv", width
    if groups == node.inputs[0].shape[-1]:
        return "depthwise_conv", width
    columns = _columns(node)
    # Threads need no whole vectors: nothing has to be filled up and cut off again.
    return "grouped_conv", columns if lanes >= _WARP and columns % width else width


def _packed(builder: Builder, weight: Value, op: str, groups: int, width: int) -> Value:
    """The weight as an operation reads it."""
    data = weight.data
    if data is None:
        return _packed_in_each_run(builder, weight, op, groups, width)
    if op == "packed_dense":
        return constant(blocks(data, width, block_count(data.shape[1], width)))
    if op == "packed_conv":
        return constant(blocks(data, width))
    if op == "depthwise_conv":
        return constant(np.ascontiguousarray(data[..., 0, :]))
    return constant(blocks_of_groups(data, groups, width))


def _packed_in_each_run(builder: Builder, weight: Value, op: str, groups: int, width: int) -> Value:
    """A convolution's computed weight [*K, C / groups, O] as `_packed` makes it of a constant one."""
    *kernel, depth, columns = weight.shape
    if op == "depthwise_conv":
        return builder.reshape(weight, (*kernel, columns))
    count = -(-columns // groups // width)
    rank = len(kernel) + 1
    parts = _split_last(builder, weight, (groups, columns // groups))
    missing = count * width - columns // groups
    parts = builder.pad(parts, (0,) * (rank + 2), (*(0,) * (rank + 1), missing), 0.0)
    parts = _split_last(builder, parts, (count, width))
    made = builder.transpose(parts, (rank, rank + 1, *range(rank), rank + 2))
    return made if op == "grouped_conv" else builder.reshape(made, (count, *kernel, depth, width))


def _split_last(builder: Builder, value: Value, sizes: tuple[int, ...]) -> Value:
    """A value whose last dimension is several.

    Of a transposed value, the dimension is split before the transpose, so that one that follows joins it.
    """
    node = value.producer
    if node is None or node.op != "transpose":
        return builder.reshape(value, (*value.shape[:-1], *sizes))
    source, axes, more = node.inputs[0], node.attrs["axes"], len(sizes) - 1
    last = axes[-1]
    split = builder.reshape(source, (*source.shape[:last], *sizes, *source.shape[last + 1 :]))
    before = [axis if axis < last else axis + more for axis in axes[:-1]]
    return builder.transpose(split, (*before, *range(last, last + more + 1)))


def blocks_of_groups(data: np.ndarray, groups: int, width: int) -> np.ndarray:
    """Weights [..., N] of a grouped convolution as [groups, N / groups / width, ..., width]."""
    return np.stack([blocks(part, width) for part in np.split(data, groups, axis=-1)])


def block_count(channels: int, width: int) -> int:
    """How many blocks the weight of a dense product has: one more where tiles of several would not divide it.

    A tile of one block and many rows loads nearly as much as it multiplies. 128 rows by 768 by 50257 columns
    on AVX2, 6283 blocks, the first divisor 61: 188 ms, and 129 ms with 6282 blocks in tiles of two.
    """
    count = -(-channels // width)
    divided = any(count % tile == 0 for tile in _TILES)
    return count if divided or count < _MANY_BLOCKS or width >= _WARP else count + 1


def blocks(data: np.ndarray, width: int, count: int = 0) -> np.ndarray:
    """[..., N] as [blocks, ..., width], filled up with zeros: `count` blocks, or as many as it takes."""
    missing = max(count * width, data.shape[-1]) - data.shape[-1]
    missing += -(data.shape[-1] + missing) % width
    if missing:
        data = np.pad(data, [(0, 0)] * (data.ndim - 1) + [(0, missing)])
    blocks = data.reshape(*data.shape[:-1], -1, width)
    return np.ascontiguousarray(np.moveaxis(blocks, -2, 0))
