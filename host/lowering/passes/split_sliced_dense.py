"""A dense product that is only read in slices of its columns becomes one product for each slice.

Queries, keys and values are often computed by one product. Their results need not be cut apart afterwards.
Products with the attribute `TOGETHER` stay one.
"""

from __future__ import annotations

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild

# Of a "dense" node whose columns are computed at once, whoever reads them.
TOGETHER = "together"


def split_sliced_dense(graph: Graph) -> Graph:
    """An equal graph in which queries, keys and values that are cut out of one product are three."""
    readers = graph.consumers()
    returned = set(graph.output_values())

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op == "slice" and node.inputs[0].producer is not None:
            result = _column_slice(builder, node, inputs[0])
            if result is not None and _only_sliced(node.inputs[0], readers, returned):
                return result
        return builder.copy(node, inputs)

    return rebuild(graph, rule)


def _only_sliced(value: Value, readers: dict[Value, list[Node]], returned: set[Value]) -> bool:
    """Whether a product, perhaps with a shift, is read by slices of columns only."""
    producer = value.producer
    if value in returned or any(not _slices_columns(reader) for reader in readers[value]):
        return False
    if producer is None or producer.op != "add":
        return True
    return all(
        part.is_constant or (readers[part] == [producer] and part not in returned) for part in producer.inputs
    )


def _slices_columns(node: Node) -> bool:
    if node.op != "slice" or node.attrs["strides"][-1] != 1:
        return False
    return node.output.shape[:-1] == node.inputs[0].shape[:-1]


def _column_slice(builder: Builder, node: Node, value: Value) -> Value | None:
    """Columns of x W + b as a product with columns of W, plus those of b."""
    if not _slices_columns(node):
        return None
    begin = node.attrs["begin"][-1]
    columns = slice(begin, begin + node.output.shape[-1])
    product, shift = value.producer, None
    if product is not None and product.op == "add":
        for part, other in (product.inputs, product.inputs[::-1]):
            if other.data is not None and other.shape[-1:] == value.shape[-1:] == (other.size,):
                product, shift = part.producer, other.data.reshape(-1)
                break
    if product is None or product.op != "dense" or product.inputs[1].data is None:
        return None
    if product.attrs.get(TOGETHER):
        return None
    weight = constant(product.inputs[1].data[:, columns])
    result = builder.one("dense", [product.inputs[0], weight], node.output.shape, node.output.dtype)
    return result if shift is None else builder.binary("add", result, constant(shift[columns]))
