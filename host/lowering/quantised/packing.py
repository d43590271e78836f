"""Packs the weights of quantised products for a processor."""

from __future__ import annotations

import numpy as np

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.quantised.layout import HALF_OFFSET, ZERO, WeightLayout
from host.lowering.rebuild import rebuild
from targets import HardwareModel

DENSE, ROWS = "quantised_dense", "quantised_rows"
PACKED = {DENSE: "packed_quantised_dense", ROWS: "packed_quantised_rows"}


def pack_quantised(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph whose quantised weights lie as the processor wants them, each packed once.

    Raises:
        LoweringError: a weight is not constant, or a language model is lowered for a GPU.
    """
    if not any(node.op in PACKED for node in graph.nodes):
        return graph
    if hardware.gpu is not None:
        return rebuild(graph, _in_floats)
    packed: dict[tuple[Value, ...], tuple[WeightLayout, tuple[Value, ...]]] = {}

    def weights_of(node: Node) -> tuple[WeightLayout, tuple[Value, ...]]:
        key = node.inputs[1:]
        if key not in packed:
            data = _constants(node)
            layout = WeightLayout.of(hardware=hardware, **node.attrs)
            assert len(key) == 2 + len(layout.further), "a weight, scales, and what the layout has"
            made = layout.packed(data[0]), *(layout.packed_scales(one) for one in data[1:])
            packed[key] = layout, tuple(constant(one) for one in made)
        return packed[key]

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op not in PACKED:
            return builder.copy(node, inputs)
        layout, weights = weights_of(node)
        arguments, (count, size) = [inputs[0], *weights], node.output.shape
        rows = node.inputs[2].shape[0]
        if node.op == ROWS:
            return builder.one(PACKED[ROWS], arguments, (count, size), "float32", layout=layout, rows=rows)
        filled = weights[0].shape[0] * layout.lanes
        made = builder.one(PACKED[DENSE], arguments, (count, filled), "float32", layout=layout)
        return builder.slice(made, (0, 0), (count, size), (1, 1))

    return rebuild(graph, rule)


def _in_floats(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
    """The product with the weight's values: GPUs have no product with packed weights.

    Raises:
        LoweringError: the node is of a language model, whose weights would not fit.
    """
    if node.op not in PACKED:
        return builder.copy(node, inputs)
    attributes = dict(node.attrs)
    if node.op == ROWS or attributes.get("multiplied") or attributes.get("asymmetry", ZERO) != ZERO:
        raise LoweringError("Quantised language models run on CPUs only; deploy with --processor cpu.")
    weight, scales, *zeros = _constants(node)
    values = _values(weight, attributes["bits"], scales, zeros[0] if zeros else None)
    return builder.one("dense", [inputs[0], constant(values)], node.output.shape, "float32")


def _constants(node: Node) -> list[np.ndarray]:
    """The weight, its scales, and what the layout has beside them.

    Raises:
        LoweringError: one is not constant.
    """
    found = [value.data for value in node.inputs[1:] if value.data is not None]
    if len(found) != len(node.inputs) - 1:
        raise LoweringError(f"The weight of {node.op} is not constant; export the model with weights.")
    return found


def _values(weight: np.ndarray, bits: int, scales: np.ndarray, zeros: np.ndarray | None) -> np.ndarray:
    """The values (K, N) of a weight (N, K), float32."""
    numbers = weight.astype(np.int16)
    if bits == 4:
        numbers = np.stack([numbers & 15, numbers >> 4], axis=-1).reshape(weight.shape[0], -1)
    middle = HALF_OFFSET if bits == 4 and zeros is None else 0
    block = numbers.shape[1] // scales.shape[1]
    shift = middle if zeros is None else zeros.astype(np.int16).repeat(block, axis=1)
    real = (numbers - shift).astype(np.float32) * scales.astype(np.float32).repeat(block, axis=1)
    return np.ascontiguousarray(real.T)
