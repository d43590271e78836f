"""Packs the weights of quantised products for a processor."""

from __future__ import annotations

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.quantised.layout import WeightLayout
from host.lowering.rebuild import rebuild
from targets import HardwareModel

DENSE, ROWS = "quantised_dense", "quantised_rows"
PACKED = {DENSE: "packed_quantised_dense", ROWS: "packed_quantised_rows"}


def pack_quantised(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph whose quantised weights lie as the processor wants them, each packed once.

    Raises:
        LoweringError: a weight is not constant, or the target is a GPU.
    """
    if not any(node.op in PACKED for node in graph.nodes):
        return graph
    if hardware.gpu is not None:
        raise LoweringError("Quantised language models run on CPUs only; deploy with --processor cpu.")
    packed: dict[tuple[Value, Value], tuple[WeightLayout, Value, Value]] = {}

    def weights_of(node: Node) -> tuple[WeightLayout, Value, Value]:
        _, weight, scales = node.inputs
        if (weight, scales) not in packed:
            if weight.data is None or scales.data is None:
                raise LoweringError(f"The weight of {node.op} is not constant; export the model with weights.")
            layout = WeightLayout.of(node.attrs["bits"], hardware)
            made = constant(layout.packed(weight.data)), constant(layout.packed_scales(scales.data))
            packed[weight, scales] = layout, *made
        return packed[weight, scales]

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op not in PACKED:
            return builder.copy(node, inputs)
        layout, weight, scales = weights_of(node)
        arguments, (count, size) = [inputs[0], weight, scales], node.output.shape
        rows = node.inputs[2].shape[0]
        if node.op == ROWS:
            return builder.one(PACKED[ROWS], arguments, (count, size), "float32", layout=layout, rows=rows)
        filled = scales.shape[0] * layout.lanes
        made = builder.one(PACKED[DENSE], arguments, (count, filled), "float32", layout=layout)
        return builder.slice(made, (0, 0), (count, size), (1, 1))

    return rebuild(graph, rule)
