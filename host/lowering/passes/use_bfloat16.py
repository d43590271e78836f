"""Dense layers and convolutions as dot products of bfloat16 numbers, with sums in single precision.

Weights are rounded to bfloat16 and packed [N / L, *K, C / 2, L, 2]: two products go to one lane, and what one
instruction reads is one vector. Products in groups of channels (depthwise ones too) stay as they are.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.passes.halves.choose_types import is_single
from host.lowering.passes.integers.arrange_dots import grouped
from host.lowering.passes.pack_weights import block_count, blocks, lanes_for
from host.lowering.rebuild import rebuild
from host.lowering.types import BFLOAT16, dot_product

_DOT = dot_product(BFLOAT16)
_GROUP = _DOT.group
_LARGEST = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)


def use_bfloat16(graph: Graph, lanes: int, halves: bool = False, choices: Choices | None = None) -> Graph:
    """A graph whose products with constant weights are dot products of bfloat16 numbers.

    Args:
        graph: with "conv" and "dense" nodes.
        lanes: fp32 elements of the target's vector.
        halves: as of `lanes_for`.
        choices: of a plan, which may leave layers in single precision.
    """
    types = choices.types if choices is not None else {}
    packed: dict[tuple[Value, str], Value] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if not _has_pairs(node) or is_single(node.layers, types):
            return builder.copy(node, inputs)
        data, weight = _as_stored(inputs[0]), inputs[1]
        assert weight.data is not None
        key = (weight, node.op)
        if key not in packed:
            packed[key] = constant(_packed(node, weight.data, lanes, halves))
        missing = -data.shape[-1] % _GROUP
        if missing:
            rank = len(data.shape)
            data = builder.pad(data, (0,) * rank, (*(0,) * (rank - 1), missing), 0.0)
        attrs = {**node.attrs, "fill": 0.0} if node.op == "conv" else node.attrs
        specs = [(node.output.shape, node.output.dtype)]
        return builder.emit(f"dot_{node.op}", [data, packed[key]], attrs, specs)

    return rebuild(graph, rule)


def _as_stored(value: Value) -> Value:
    """Numbers of bfloat16 before they were widened."""
    node = value.producer
    widened = node is not None and node.op == "cast" and node.inputs[0].dtype == _DOT.activations
    return node.inputs[0] if node is not None and widened else value


def _has_pairs(node: Node) -> bool:
    if node.op not in ("conv", "dense") or node.output.dtype != "float32":
        return False
    weight = node.inputs[1].data
    whole = node.op == "dense" or node.attrs["groups"] == 1
    # A number that is too large would be infinite.
    return weight is not None and whole and bool(np.abs(weight).max(initial=0.0) <= _LARGEST)


def _packed(node: Node, data: np.ndarray, lanes: int, halves: bool) -> np.ndarray:
    """Weights [..., C, N] as [blocks, ..., C / 2, L, 2] of bfloat16, rounded to the nearest."""
    missing = -data.shape[-2] % _GROUP
    if missing:
        data = np.pad(data, [(0, 0)] * (data.ndim - 2) + [(0, missing), (0, 0)])
    width = lanes_for(data.shape[-1], lanes, halves)
    count = block_count(data.shape[-1], width) if node.op == "dense" else 0
    return grouped(blocks(data.astype(ml_dtypes.bfloat16), width, count), _GROUP)
