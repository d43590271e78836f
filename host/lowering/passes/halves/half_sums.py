"""Products with constant weights as products of halves, whose sums are halves over short blocks.

A sum of n products in halves, each step rounded to 11 bits, is off by 0.41 u sqrt(n / 2) of its own spread
as root mean square, with u = 2^-11: the sums before the end are a random walk, and a rounded number is 0.41 u
off its value (uniform within half a unit of the last place). Rounding both factors alone moves it by 0.58 u,
which storing tensors as halves does anyway. Blocks of 12 products add 1.0 u, those of 16 1.16 u; together
they stay within the tolerance, which is four times what rounding the weights moves: 1.64 u. Sums of blocks
are in single precision, so that their number does not count. A MobileNetV2 with random weights, which
enlarges errors, is off by 0.0193 with blocks of 16 and 24 and by 0.0097 without, where 0.0197 is allowed.

Inputs of the model are of any size, and a verification sees those of a sample alone: what reads them stays in
single precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.passes.halves.choose_types import is_single
from host.lowering.passes.pack_weights import block_count, blocks
from host.lowering.rebuild import MOVES, rebuild
from targets import HardwareModel

# The operations that this pass makes.
OF_HALVES = frozenset({"half_dense", "half_conv", "half_depthwise_conv"})

# Products of a block, the wanted number and its bounds, and what it is a multiple of: the activations of a
# row come as vectors.
_BLOCK, _SMALLEST_BLOCK, _LARGEST_BLOCK, _STEP = 12, 8, 16, 4
_LARGEST = float(np.finfo(np.float16).max)


def use_half_sums(graph: Graph, hardware: HardwareModel, choices: Choices | None = None) -> Graph:
    """A graph whose products with constant weights are "half_dense", "half_conv" and "half_depthwise_conv".

    Weights are packed for vectors of halves, two of them side by side where they divide the columns. Left as
    they are: products of the graph's inputs, those without whole vectors of activations along their sums, in
    groups of several channels, with long windows of each channel by itself, with weights that no half holds,
    those that a plan leaves in single precision, and all for processors without arithmetic in halves.

    Args:
        graph: with "conv" and "dense" nodes.
        hardware: the processor.
        choices: of a plan.
    """
    types = choices.types if choices is not None else {}
    if not hardware.half_arithmetic or hardware.gpu is not None:
        return graph
    packed: dict[tuple[Value, str], Value] = {}
    lanes = 2 * hardware.lanes

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        form = None if is_single(node.layers, types) else _form(node, lanes)
        if form is None or inputs[1].data is None or _moved(node.inputs[0]) in graph.inputs:
            return builder.copy(node, inputs)
        op, block, arrange = form
        key = (inputs[1], op)
        if key not in packed:
            packed[key] = constant(arrange(inputs[1].data))
        specs = [(node.output.shape, node.output.dtype)]
        return builder.emit(op, [inputs[0], packed[key]], {**node.attrs, "block": block}, specs)

    return rebuild(graph, rule)


def _moved(value: Value) -> Value:
    """The value whose elements another one holds in other places or shapes."""
    while value.producer is not None and value.producer.op in MOVES:
        value = value.producer.inputs[0]
    return value


def block_of(depth: int) -> int:
    """Products of one block of a sum over `depth`, a divisor of it; 0 where no suitable number is one."""
    sizes = [size for size in range(_SMALLEST_BLOCK, _LARGEST_BLOCK + 1, _STEP) if depth % size == 0]
    return min(sizes, key=lambda size: abs(math.log(size / _BLOCK)), default=0)


def _form(node: Node, lanes: int) -> tuple[str, int, Callable[[np.ndarray], np.ndarray]] | None:
    """The operation, the products of a block, and how weights are packed; None for a node that stays."""
    if node.op not in ("conv", "dense") or node.output.dtype != "float32" or node.inputs[1].data is None:
        return None
    weight = node.inputs[1].data
    if float(np.abs(weight).max(initial=0.0)) > _LARGEST:
        return None
    channels, made = node.inputs[0].shape[-1], weight.shape[-1]
    # Two vectors side by side are loaded by one instruction (LDP), for which a tile of two needs no more
    # registers; from two places it loads each alone.
    panel = 2 * lanes if made % (2 * lanes) == 0 else lanes
    if node.op == "dense":
        count, block = made // panel if panel > lanes else block_count(made, lanes), block_of(channels)
        return ("half_dense", block, lambda data: blocks(data, panel, count)) if block else None
    groups = node.attrs["groups"]
    if groups == channels == made and made % lanes == 0 and "taps" not in node.attrs:
        window = math.prod(weight.shape[:-2])
        if window > _LARGEST_BLOCK:
            return None
        return "half_depthwise_conv", window, lambda data: np.ascontiguousarray(data[..., 0, :])
    if groups == 1 and block_of(channels):
        return "half_conv", block_of(channels), lambda data: blocks(data, panel)
    return None
