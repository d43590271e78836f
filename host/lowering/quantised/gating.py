"""Products of gate and up whose activation is computed with them: SwiGLU, and others like it."""

from __future__ import annotations

from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions import math
from host.lowering.graph import Graph, Node, Value
from host.lowering.quantised.layout import WeightLayout
from host.lowering.quantised.packing import DENSE, FIRST, PACKED
from host.lowering.quantised.product import TILED, gated_product_function
from host.lowering.rebuild import rebuild
from host.tensor_ir.tiles.gated import ACTIVATIONS
from host.tensor_ir.tiles.lines import DEPTH, LANES
from targets import HardwareModel

GATED_DENSE = "packed_gated_dense"
# Rows from which on taking weights apart to tiles pays.
LEAST_ROWS = 32
# Rows at most: between parts of the depth, the stack has sums of all rows too, 128 bytes of each.
MOST_ROWS = 8192
_EXPRESSIONS = {"silu": math.silu, "gelu_tanh": math.gelu_tanh}


def gated_function(node: Node) -> tirx.PrimFunc:
    """The function of a "packed_gated_dense" node."""
    return gated_product_function(node, _EXPRESSIONS[node.attrs["activation"]])


def gate_products(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph whose products of gate and up compute activation(gate) * up, where tiles make both.

    Each is in place of a product with all outputs, of which gate is the first half, the activation, and what
    multiplies it with the second half. The result is rounded and in tiles where a product in tiles reads it,
    which would round it in the same way.
    """
    if not hardware.has_bfloat16_tiles or not any(node.op == PACKED[DENSE] for node in graph.nodes):
        return graph
    readers, returned = graph.consumers(), set(graph.output_values())

    def read_by(value: Value, count: int) -> bool:
        return len(readers.get(value, ())) == count and value not in returned

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        for place in (0, 1) if node.op == "multiply" and len(node.inputs) == 2 else ():
            gate, up = node.inputs[place].producer, node.inputs[1 - place].producer
            first = gate.inputs[0].producer if gate is not None and gate.op in ACTIVATIONS else None
            if gate is None or first is None or up is None or not _halves(first, up):
                continue
            inner = (gate.output, first.output, up.output)
            whole = first.inputs[0].producer
            once = read_by(first.inputs[0], 2) and all(read_by(value, 1) for value in inner)
            if whole is None or not once or not _in_tiles(whole, hardware) or FIRST in whole.attrs:
                continue
            # The product as it was copied, whose only reader will be this one.
            copied = inputs[1 - place].producer
            product = copied.inputs[0].producer if copied is not None else None
            assert product is not None and product.op == PACKED[DENSE], "a copy of the product"
            attrs = {"layout": product.attrs["layout"], "activation": gate.op}
            shape, dtype = node.output.shape, node.output.dtype
            if read_by(node.output, 1) and _takes_tiles(readers[node.output][0], node.output, hardware):
                shape, dtype = (shape[0] // LANES, shape[1] // DEPTH, LANES, DEPTH), TILED
            return builder.one(GATED_DENSE, product.inputs, shape, dtype, **attrs)
        return builder.copy(node, inputs)

    return rebuild(graph, rule)


def _halves(first: Node, second: Node) -> bool:
    """Whether two nodes are the halves of the columns of one value, each of whole panels."""
    if first.op != "slice" or second.op != "slice" or first.inputs[0] is not second.inputs[0]:
        return False
    rows, columns = first.inputs[0].shape if len(first.inputs[0].shape) == 2 else (0, 0)
    size = columns // 2
    found = [(one.output.shape, one.attrs["begin"], one.attrs["strides"]) for one in (first, second)]
    halves = [((rows, size), (0, begin), (1, 1)) for begin in (0, size)]
    return found == halves and columns == 2 * size and size % LANES == 0


def _takes_tiles(reader: Node, value: Value, hardware: HardwareModel) -> bool:
    """Whether a node multiplies a value in registers of matrices, each element as one number."""
    found = reader.op == PACKED[DENSE] and reader.inputs[0] is value and _in_tiles(reader, hardware)
    return found and reader.attrs["layout"].planes == 1


def _in_tiles(product: Node, hardware: HardwareModel) -> bool:
    """Whether a node is a product in registers of matrices."""
    if product.op != PACKED[DENSE]:
        return False
    layout: WeightLayout = product.attrs["layout"]
    tiles, rows = hardware.matrix_tiles, product.output.shape[0]
    assert tiles is not None, "the processor has tiles"
    fits = layout.instruction == "u8s8" and layout.lanes == LANES and layout.group % DEPTH == 0
    return fits and rows % tiles.rows == 0 and LEAST_ROWS <= rows <= MOST_ROWS
