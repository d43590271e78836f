"""Packs the weights of quantised products for a processor."""

from __future__ import annotations

import numpy as np

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.quantised.layout import WeightLayout
from host.lowering.quantised.row_major import RowForm
from host.lowering.rebuild import rebuild
from targets import HardwareModel

DENSE, ROWS = "quantised_dense", "quantised_rows"
PACKED = {DENSE: "packed_quantised_dense", ROWS: "packed_quantised_rows"}
IN_ROWS = {DENSE: "row_quantised_dense", ROWS: "row_quantised_rows"}


def pack_quantised(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph whose quantised weights lie as the processor wants them, each packed once.

    Raises:
        LoweringError: a weight is not constant.
    """
    if not any(node.op in PACKED for node in graph.nodes):
        return graph
    if hardware.gpu is not None:
        return rebuild(graph, _in_rows)
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


def _in_rows(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
    """The operation as a GPU has it, whose weight stays as it is.

    Raises:
        LoweringError: the weight is not constant.
    """
    if node.op not in PACKED:
        return builder.copy(node, inputs)
    weight, scales, *_ = _constants(node)
    depth = weight.shape[1] * (2 if node.attrs["bits"] == 4 else 1)
    form = RowForm.of(node.attrs, depth, scales)
    return builder.one(IN_ROWS[node.op], inputs, node.output.shape, "float32", form=form)


def _constants(node: Node) -> list[np.ndarray]:
    """The weight, its scales, and what the layout has beside them.

    Raises:
        LoweringError: one is not constant.
    """
    found = [value.data for value in node.inputs[1:] if value.data is not None]
    if len(found) != len(node.inputs) - 1:
        raise LoweringError(f"The weight of {node.op} is not constant; export the model with weights.")
    return found
