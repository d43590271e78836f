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
    packed: dict[tuple[Value, ...], tuple[WeightLayout, tuple[Value, ...]]] = {}

    def weights_of(node: Node) -> tuple[WeightLayout, tuple[Value, ...]]:
        key = node.inputs[1:]
        if key not in packed:
            data = [value.data for value in key if value.data is not None]
            if len(data) != len(key):
                raise LoweringError(
                    f"The weight of {node.op} is not constant; export the model with weights."
                )
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
