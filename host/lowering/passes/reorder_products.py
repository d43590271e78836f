"""Products with constant weights where they cost least: before an image is enlarged, and two of them as one.

A product over channels and a resizing of the image exchange: both are linear, and one does not look at what
the other mixes. Segmentation heads enlarge feature maps, join them and then reduce their channels; the same
comes out of products of the small maps, enlarged and added up. Two products with nothing but a shift between
them are one product, with the product of their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild

# Operations of a product in the time in which one element of a tensor is read or written.
_ELEMENT = 16

Readers = Mapping[Value, list[Node]]


def reorder_products(graph: Graph) -> Graph:
    """An equal graph up to rounding, with fewer operations."""
    return _merged(_before_resizing(graph))


@dataclass(frozen=True, eq=False)
class _Part:
    """Some channels of what a product reads.

    Attributes:
        value: with all rows.
        resize: what made it from fewer rows, if a resizing did.
    """

    value: Value
    resize: Node | None

    @property
    def source(self) -> Value:
        """The tensor that is read before it is resized."""
        return self.value if self.resize is None else self.resize.inputs[0]

    @property
    def channels(self) -> int:
        """Size of the last dimension."""
        return self.value.shape[-1]


def _before_resizing(graph: Graph) -> Graph:
    readers, returned = graph.consumers(), set(graph.output_values())

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op == "dense" and inputs[1].data is not None and inputs[1].data.ndim == 2:
            only = _only_reader(node, readers, returned)
            parts = _parts(inputs[0])
            if only and any(part.resize for part in parts) and _is_cheaper(parts, node):
                return _sum_of_products(builder, node, parts, inputs[1].data)
        return builder.copy(node, inputs)

    return rebuild(graph, rule)


def _only_reader(node: Node, readers: Readers, returned: set[Value]) -> bool:
    """Whether nothing but the product needs what lies between the resizings and it."""
    between = [node.inputs[0]]
    while between[-1].producer is not None and between[-1].producer.op == "reshape":
        between.append(between[-1].producer.inputs[0])
    between += [part.value for part in _parts(node.inputs[0]) if part.resize]
    return all(value not in returned and len(readers[value]) == 1 for value in between)


def _parts(value: Value) -> list[_Part]:
    """The parts of a joined tensor along its last dimension, in order; one part if it is not joined."""
    producer = value.producer
    while producer is not None and producer.op == "reshape":
        if producer.inputs[0].shape[-1] != value.shape[-1]:
            return [_Part(value, None)]
        value = producer.inputs[0]
        producer = value.producer
    joined = producer is not None and producer.op == "concat"
    if producer is not None and joined and producer.attrs["axis"] == len(value.shape) - 1:
        return [_Part(one, _resizing(one)) for one in producer.inputs]
    return [_Part(value, _resizing(value))]


def _resizing(value: Value) -> Node | None:
    """The resizing that makes a tensor, if it leaves the last dimension alone."""
    producer = value.producer
    found = producer is not None and producer.op == "resize" and producer.attrs["along"][-1] is None
    return producer if found else None


def _is_cheaper(parts: list[_Part], node: Node) -> bool:
    """Whether the products of the parts, resized, are less work than the product of all."""
    rows, columns = node.output.shape
    whole = sum(part.channels for part in parts)
    resized = [part for part in parts if part.resize]
    before = 2 * rows * whole * columns + _ELEMENT * rows * sum(part.channels for part in resized)
    before += _ELEMENT * rows * whole if len(parts) > 1 else 0
    after = sum(2 * part.source.size * columns for part in parts)
    # Each part is written over all rows: resized, or added to the others.
    after += _ELEMENT * rows * columns * len(parts)
    return after < before


def _sum_of_products(builder: Builder, node: Node, parts: list[_Part], weight: np.ndarray) -> Value:
    """The products of all parts, each resized behind it, added up."""
    total: Value | None = None
    columns, start = weight.shape[1], 0
    for part in parts:
        rows = builder.reshape(part.source, (-1, part.channels))
        own = constant(weight[start : start + part.channels])
        start += part.channels
        made = builder.one("dense", [rows, own], (rows.shape[0], columns), node.output.dtype)
        made = builder.reshape(made, (*part.source.shape[:-1], columns))
        if part.resize is not None:
            shape = (*part.value.shape[:-1], columns)
            made = builder.one("resize", [made], shape, made.dtype, **part.resize.attrs)
        total = made if total is None else builder.binary("add", made, total)
    assert total is not None
    return builder.reshape(total, node.output.shape)


def _merged(graph: Graph) -> Graph:
    """Products of products are one where that has fewer operations."""
    readers, returned = graph.consumers(), set(graph.output_values())

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        merged = _product_of_product(builder, node, inputs, readers, returned)
        return builder.copy(node, inputs) if merged is None else merged

    return rebuild(graph, rule)


def _product_of_product(
    builder: Builder, node: Node, inputs: tuple[Value, ...], readers: Readers, returned: set[Value]
) -> Value | None:
    """((x A) + a) B as x (A B) + a B."""
    if node.op != "dense" or inputs[1].data is None or inputs[1].data.ndim != 2:
        return None
    between, product, shift = [node.inputs[0]], inputs[0].producer, None
    if product is not None and product.op == "add":
        row = [one.data for one in product.inputs if one.data is not None and one.size == one.shape[-1]]
        other = [one for one in product.inputs if one.data is None]
        if len(row) != 1 or len(other) != 1:
            return None
        shift, product = row[0].reshape(-1), other[0].producer
        old = node.inputs[0].producer
        assert old is not None
        between += [one for one in old.inputs if not one.is_constant]
    if product is None or product.op != "dense" or product.inputs[1].data is None:
        return None
    first, second = product.inputs[1].data, inputs[1].data
    if first.ndim != 2 or (shift is not None and shift.size != first.shape[1]):
        return None
    fewer = first.shape[0] * second.shape[1] < first.size + second.size
    alone = all(value not in returned and len(readers[value]) == 1 for value in between)
    if not fewer or not alone or first.dtype != np.float32 or second.dtype != np.float32:
        return None
    weight = (first.astype(np.float64) @ second.astype(np.float64)).astype(np.float32)
    made = builder.one("dense", [product.inputs[0], constant(weight)], node.output.shape, node.output.dtype)
    if shift is None:
        return made
    return builder.binary("add", made, constant((shift.astype(np.float64) @ second).astype(np.float32)))
