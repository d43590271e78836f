"""3x3 convolutions by Winograd's algorithm, channels last."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.expressions.windows import padded_input
from host.lowering.graph import Node
from host.lowering.ops.contraction import PADDED
from host.lowering.passes.use_winograd import use_winograd
from host.lowering.spec import GraphPass, OpSpec, Phase
from host.lowering.winograd.transforms import TILES


def _write(stage: Stage, node: Node) -> None:
    """Weight [O / L, C, 3, 3, L]; block "winograd" multiplies, two blocks before and behind transform.

    Transformed tensors are [row, column, tile, channel]; rows and columns are those of a tile, tiles are
    numbered along the batch, then rows, then columns. Each transform is done along columns, then along rows.
    """
    transform = TILES[node.attrs["outputs"]]
    step, size = transform.outputs, transform.size
    batch, height, width, _ = node.output.shape
    down, across = -(-height // step), -(-width // step)
    tiles = batch * down * across
    blocks, depth, _, _, lanes = node.inputs[1].shape
    data = padded_input(stage, _whole_tiles(node, down * step + 2, across * step + 2))

    def weight(*indices: Any) -> Expression:
        # Where it lies in memory as halves, it is widened as it is read.
        return stage.element(node.inputs[1], indices)

    def patch(row: int, column: Any, p: Any, c: Any) -> Expression:
        top, left = p // across % down * step, p % across * step
        return data(p // (down * across), top + row, left + column, c)

    columns = stage.compute(
        (size, size, tiles, depth),
        lambda i: _chosen(i[0], transform.input([patch(k, *i[1:]) for k in range(size)])),
        "input_columns",
    )
    tile = _rows(stage, columns, size, size, transform.input, "input_rows")
    weight_columns = stage.compute(
        (size, 3, blocks, depth, lanes),
        lambda i: _chosen(i[0], transform.weight([weight(i[2], i[3], k, i[1], i[4]) for k in range(3)])),
        "weight_columns",
    )
    taps = _rows(stage, weight_columns, size, 3, transform.weight, "weight_rows")
    k = te.reduce_axis((0, depth), "k")

    def product(i: Indices) -> Expression:
        row, column, p, o = i
        return te.sum(tile(row, column, p, k) * taps(row, column, o // lanes, k, o % lanes), axis=[k])

    products = stage.compute((size, size, tiles, blocks * lanes), product, "winograd")
    output_columns = stage.compute(
        (step, size, tiles, blocks * lanes),
        lambda i: _chosen(i[0], transform.output([products(k, *i[1:]) for k in range(size)])),
        "output_columns",
    )
    result = _rows(stage, output_columns, step, size, transform.output, "output_rows")

    def element(i: Indices) -> Expression:
        n, y, x, o = i
        return load(result, [y % step, x % step, (n * down + y // step) * across + x // step, o])

    stage.define(node.output, element)


def _whole_tiles(node: Node, height: int, width: int) -> Node:
    """The convolution with its padding extended until the input is `height` x `width`."""
    top, left, _, _ = node.attrs["padding"]
    _, rows, columns, _ = node.inputs[0].shape
    padding = (top, left, height - top - rows, width - left - columns)
    return dataclasses.replace(node, attrs={**node.attrs, "padding": padding})


def _rows(
    stage: Stage,
    columns: te.Tensor,
    rows: int,
    taps: int,
    transform: Callable[[list[Any]], list[Any]],
    name: str,
) -> te.Tensor:
    """The second dimension of a tensor with `rows` x `taps` leading elements transformed."""
    made = len(transform([tirx.const(0.0)] * taps))
    shape = (rows, made, *(int(extent) for extent in columns.shape[2:]))
    return stage.compute(
        shape,
        lambda i: _chosen(i[1], transform([columns(i[0], k, *i[2:]) for k in range(taps)])),
        name,
    )


def _chosen(index: Any, expressions: list[Expression]) -> Expression:
    """The expression with the number `index`; unrolling the loop of the index leaves just that one."""
    result = expressions[-1]
    for number in reversed(range(len(expressions) - 1)):
        result = tirx.Select(index == number, expressions[number], result)
    return result


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "winograd_conv",
        write=_write,
        passes=(GraphPass(Phase.PACKED, use_winograd, approximate=True, decides=True),),
        fusion=PADDED,
    ),
)
