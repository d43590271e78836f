"""Matrix products of activations and constant weights ("dense"), and of two activations ("matmul")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import te

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.expressions.windows import finish, product
from host.lowering.graph import Node, Value, broadcast_shape, constant
from host.lowering.passes.integers.use_integers import is_quantized_constant
from host.lowering.passes.permutations.weights import product as reordered
from host.lowering.passes.sink_reshapes import ReshapeWalk
from host.lowering.passes.sink_transposes import keep_last_dimensions
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec

# Multiply-adds above which a product of constants is left to the device: it would take seconds here.
_MOST_FOLDED = 1 << 31


def _read(builder: Builder, call: OperatorCall) -> Value | None:
    left, right = call.value(0), call.value(1)
    if left.dtype != right.dtype or left.dtype != call.dtype or left.size == 0 or right.size == 0:
        return None
    # A vector is a row on the left and a column on the right; the result loses that dimension.
    if len(left.shape) == 1:
        left = builder.reshape(left, (1, left.size))
    if len(right.shape) == 1:
        right = builder.reshape(right, (right.size, 1))
    batch = broadcast_shape(left.shape[:-2], right.shape[:-2])
    shape = (*batch, left.shape[-2], right.shape[-1])
    known = right.is_constant or is_quantized_constant(right)
    op = "dense" if known and len(right.shape) == 2 else "matmul"
    return builder.reshape(builder.one(op, [left, right], shape, call.dtype), call.shape)


def _matrix(walk: ReshapeWalk, node: Node) -> Value:
    """Rows of a matrix, however many dimensions they came in."""
    data, weight = walk.tensor(node.inputs[0]), node.inputs[1]
    matrix = walk.builder.reshape(data, (-1, weight.shape[0]))
    shape = (matrix.shape[0], weight.shape[1])
    return walk.builder.one("dense", [matrix, weight], shape, node.output.dtype, **node.attrs)


def _packed_dense(stage: Stage, node: Node) -> None:
    """X [..., K] times weight [N' / L, K, L]; block "matmul" computes N' >= N columns."""
    data, weight = stage.tensor(node.inputs[0], "prologue"), stage.argument(node.inputs[1])
    blocks, depth, lanes = node.inputs[1].shape
    k = te.reduce_axis((0, depth), "k")

    def element(indices: Indices) -> Expression:
        *rows, j = indices
        return te.sum(product(data(*rows, k), weight(j // lanes, k, j % lanes), node.output.dtype), axis=[k])

    shape = (*node.output.shape[:-1], blocks * lanes)
    finish(stage, node.output, stage.compute(shape, element, "matmul"))


def _matmul(stage: Stage, node: Node) -> None:
    """Two activations, leading dimensions broadcast; block "matmul"."""
    left, right = (stage.tensor(value, "prologue") for value in node.inputs)
    k = te.reduce_axis((0, node.inputs[0].shape[-1]), "k")

    def element(indices: Indices) -> Expression:
        *batch, i, j = indices
        a = left(*_broadcast(node.inputs[0], batch), i, k)
        b = right(*_broadcast(node.inputs[1], batch), k, j)
        return te.sum(a * b, axis=[k])

    finish(stage, node.output, stage.compute(node.output.shape, element, "matmul"))


def _broadcast(value: Value, batch: Indices) -> list[Any]:
    own = value.shape[:-2]
    indices = list(batch)[len(batch) - len(own) :]
    return [0 if size == 1 else index for size, index in zip(own, indices, strict=True)]


def _of_one_weight(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """A product of a batch with a constant that is the same for all of it: rows of all with one weight.

    `torch.export` writes a linear layer of transposed activations so, with the weight repeated.
    """
    data, right = inputs
    if right.data is None or len(right.shape) < 3 or prod(data.shape[:-2]) != prod(node.output.shape[:-2]):
        return None
    matrices = right.data.reshape(-1, *right.shape[-2:])
    if not (matrices[1:] == matrices[0]).all():
        return None
    shape = (*data.shape[:-1], right.shape[-1])
    made = builder.one("dense", [data, constant(matrices[0])], shape, node.output.dtype)
    return builder.reshape(made, node.output.shape)


def _fold(
    inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], shape: tuple[int, ...], dtype: str
) -> np.ndarray | None:
    """The product of constants, as of a table of positions and the weights that project it."""
    left, right = inputs
    if not dtype.startswith("float") or left.size * right.shape[-1] > _MOST_FOLDED:
        return None
    # In double precision, so that the order of the sums is not seen in the result.
    exact: np.ndarray = np.matmul(left.astype("float64"), right.astype("float64"))
    return exact.reshape(shape)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "dense",
        fold=_fold,
        fusion=Fusion(anchor=True),
        sink_transpose=keep_last_dimensions,
        sink_reshape=_matrix,
        sink_permutation=reordered,
    ),
    OpSpec("packed_dense", write=_packed_dense, fusion=Fusion(anchor=True)),
    OpSpec(
        "matmul",
        read={"matmul": _read},
        write=_matmul,
        fold=_fold,
        simplify=_of_one_weight,
        fusion=Fusion(anchor=True),
    ),
)
