"""Packs the weights of quantised products for a processor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.choices import Choices
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.quantised.layout import WeightLayout
from host.lowering.quantised.row_major import RowForm
from host.lowering.rebuild import Rule, rebuild
from targets import HardwareModel

DENSE, ROWS = "quantised_dense", "quantised_rows"
PACKED = {DENSE: "packed_quantised_dense", ROWS: "packed_quantised_rows"}
# The first row of a weight that an operation multiplies by, where others multiply by the other rows.
FIRST = "first"
IN_ROWS = {DENSE: "row_quantised_dense", ROWS: "row_quantised_rows"}


def pack_quantised(graph: Graph, hardware: HardwareModel, choices: Choices | None = None) -> Graph:
    """An equal graph whose quantised weights lie as the processor wants them, each packed once.

    Args:
        graph: of one function of a model.
        hardware: the processor.
        choices: of the model, which have what was packed for its other functions; None for no others.

    Raises:
        LoweringError: a weight is not constant.
    """
    if not any(node.op in PACKED for node in graph.nodes):
        return graph
    if hardware.gpu is not None:
        return rebuild(graph, _in_rows())
    packed: dict[tuple[WeightLayout, tuple[Value, ...]], tuple[Value, ...]] = {}
    whole: dict[tuple[Value, ...], Value] = {}
    known = (choices or Choices()).packed

    def weights_of(node: Node, layout: WeightLayout) -> tuple[Value, ...]:
        # What activations are rounded to changes nothing of a weight.
        key = (replace(layout, rounding=16), node.inputs[1:])
        if key not in packed:
            data = _constants(node)
            assert len(data) == 2 + len(layout.further), "a weight, scales, and what the layout has"
            made = known.of(data, key[0], lambda: _packed(data, layout))
            packed[key] = tuple(constant(one) for one in made)
        return packed[key]

    def product(builder: Builder, arguments: list[Value], rows: int, layout: WeightLayout) -> Value:
        filled = arguments[1].shape[0] * layout.lanes
        return builder.one(PACKED[DENSE], arguments, (rows, filled), "float32", layout=layout)

    def part(builder: Builder, node: Node, arguments: list[Value], layout: WeightLayout, first: int) -> Value:
        """Some outputs of a weight, of which other operations have the others."""
        (count, size), total = node.output.shape, node.inputs[2].shape[0]
        exact, end = replace(layout, rounding=16), first + size
        panels = first % layout.lanes == 0 and (end % layout.lanes == 0 or end == total)
        if panels and replace(layout, rounding=8).planes != exact.planes:
            filled = -(-size // layout.lanes) * layout.lanes
            made = builder.one(
                PACKED[DENSE],
                arguments,
                (count, filled),
                "float32",
                layout=layout,
                first=first // layout.lanes,
            )
            return builder.slice(made, (0, 0), (count, size), (1, 1))
        # All are computed at once where none gains by being rounded otherwise, or a panel has outputs of two.
        key = tuple(arguments)
        if key not in whole:
            whole[key] = product(builder, arguments, count, exact)
        return builder.slice(whole[key], (0, first), (count, size), (1, 1))

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op not in PACKED:
            return builder.copy(node, inputs)
        options = {name: one for name, one in node.attrs.items() if name != FIRST}
        layout = WeightLayout.of(hardware=hardware, **options)
        arguments, (count, size) = [inputs[0], *weights_of(node, layout)], node.output.shape
        if FIRST in node.attrs:
            return part(builder, node, arguments, layout, node.attrs[FIRST])
        rows = node.inputs[2].shape[0]
        if node.op == ROWS:
            return builder.one(PACKED[ROWS], arguments, (count, size), "float32", layout=layout, rows=rows)
        made = product(builder, arguments, count, layout)
        return builder.slice(made, (0, 0), (count, size), (1, 1))

    return rebuild(graph, rule)


def _packed(data: Sequence[np.ndarray], layout: WeightLayout) -> Iterator[np.ndarray]:
    """A weight, its scales and the rest, as they lie in memory."""
    yield np.asarray(layout.packed(data[0]), order="C")
    for one in data[1:]:
        yield np.asarray(layout.packed_scales(one), order="C")


def _in_rows() -> Rule:
    """The rule that makes operations as a GPU has them, whose weights stay as they are.

    All outputs of a weight are computed at once. Raises LoweringError where a weight is not constant.
    """
    whole: dict[tuple[Value, ...], Value] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op not in PACKED:
            return builder.copy(node, inputs)
        weight, scales, *_ = _constants(node)
        depth = weight.shape[1] * (2 if node.attrs["bits"] == 4 else 1)
        form = RowForm.of(node.attrs, depth, scales)
        if FIRST not in node.attrs:
            return builder.one(IN_ROWS[node.op], inputs, node.output.shape, "float32", form=form)
        (count, size), total, first = node.output.shape, weight.shape[0], node.attrs[FIRST]
        if inputs not in whole:
            whole[inputs] = builder.one(IN_ROWS[node.op], inputs, (count, total), "float32", form=form)
        return builder.slice(whole[inputs], (0, first), (count, size), (1, 1))

    return rule


def _constants(node: Node) -> list[np.ndarray]:
    """The weight, its scales, and what the layout has beside them.

    Raises:
        LoweringError: one is not constant.
    """
    found = [value.data for value in node.inputs[1:] if value.data is not None]
    if len(found) != len(node.inputs) - 1:
        raise LoweringError(f"The weight of {node.op} is not constant; export the model with weights.")
    return found
