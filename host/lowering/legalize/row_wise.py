"""Softmax and normalisations along the last dimensions."""

from __future__ import annotations

from math import prod

from tvm import te, tirx

from host.lowering.expressions import math
from host.lowering.expressions.stage import Element, Expression, Indices, Stage, load
from host.lowering.expressions.whole_vectors import WholeVectors
from host.lowering.graph import Node
from host.lowering.legalize.reduction import reduced_row


def softmax(stage: Stage, node: Node) -> None:
    """Blocks "max", "exp", "sum", "reciprocal"; the product of the last two is a formula.

    A row that is no whole number of vectors is read as one that is, with values of no weight among its own.
    """
    value = node.inputs[0]
    rows, dtype = value.shape[:-1], value.dtype
    data, vectors = stage.tensor(value, "prologue"), WholeVectors(stage, value.shape[-1], dtype)
    # Not minus infinity: a row may be nothing else.
    element = vectors.read(rows, lambda i: load(data, i), tirx.min_value(dtype), "row")
    exponential = math.exp_of_nonpositive if dtype == "float32" else tirx.exp
    k = te.reduce_axis((0, vectors.length), "k")
    largest = stage.compute(rows, lambda i: te.max(element([*i, k]), axis=[k]), "max")
    powers = stage.compute(
        (*rows, vectors.length), lambda i: exponential(element(i) - load(largest, i[:-1])), "exp"
    )
    k2 = te.reduce_axis((0, vectors.length), "k")
    total = stage.compute(rows, lambda i: te.sum(powers(*i, k2), axis=[k2]), "sum")
    share = stage.compute(rows, lambda i: tirx.const(1.0, dtype) / load(total, i), "reciprocal")
    stage.define(node.output, lambda i: load(powers, vectors.place(i)) * load(share, i[:-1]))


def log_softmax(stage: Stage, node: Node) -> None:
    """Blocks "max", "sum", "log"; the differences are a formula."""
    value = node.inputs[0]
    rows, size, dtype = value.shape[:-1], value.shape[-1], value.dtype
    data = stage.tensor(value, "prologue")
    exponential, logarithm = (
        (math.exp_of_nonpositive, math.log) if dtype == "float32" else (tirx.exp, tirx.log)
    )
    greatest = reduced_row(stage, (size,), dtype, lambda i: load(data, i), "max")
    largest = stage.compute(rows, greatest, "max")
    total = _row_sum(stage, node, lambda i: exponential(load(data, i) - load(largest, i[:-1])), "sum")
    logarithms = stage.compute(rows, lambda i: logarithm(load(total, i)), "log")
    stage.define(node.output, lambda i: load(data, i) - load(largest, i[:-1]) - load(logarithms, i[:-1]))


def layer_norm(stage: Stage, node: Node) -> None:
    """Blocks "sum", "square_sum" (of distances from the mean), "scale"; scale and shift come after it."""
    value, dims = node.inputs[0], node.attrs["dims"]
    if dims == 1 and stage.any_length:
        vectors = WholeVectors(stage, value.shape[-1], value.dtype)
        if vectors.length != value.shape[-1]:
            _layer_norm_of_any_length(stage, node, vectors)
            return
    rows, count, dtype = value.shape[:-dims], prod(value.shape[-dims:]), value.dtype
    data = stage.tensor(value, "prologue")
    total = _row_sum(stage, node, lambda i: load(data, i), "sum")
    share = tirx.const(1.0 / count, dtype)

    def squared(indices: Indices) -> Expression:
        return math.bind(
            load(data, indices) - load(total, indices[: len(rows)]) * share,
            lambda distance: distance * distance,
        )

    squares = _row_sum(stage, node, squared, "square_sum")
    epsilon = tirx.const(node.attrs["epsilon"], dtype)
    scale = stage.compute(
        rows, lambda i: tirx.const(1.0, dtype) / tirx.sqrt(load(squares, i) * share + epsilon), "scale"
    )

    def element(indices: Indices) -> Expression:
        row = indices[: len(rows)]
        return (load(data, indices) - load(total, row) * share) * load(scale, row)

    stage.define(node.output, element)


def _layer_norm_of_any_length(stage: Stage, node: Node, vectors: WholeVectors) -> None:
    """Blocks "distance", with zeros that make it whole vectors, "sum", "square_sum", "scale"."""
    value = node.inputs[0]
    rows, size, dtype = value.shape[:-1], value.shape[-1], value.dtype
    data, zero = stage.tensor(value, "prologue"), tirx.const(0.0, value.dtype)
    share, epsilon = tirx.const(1.0 / size, dtype), tirx.const(node.attrs["epsilon"], dtype)

    def row_sum(element: Element, name: str) -> te.Tensor:
        k = te.reduce_axis((0, vectors.length), "k")
        return stage.compute(rows, lambda i: te.sum(element([*i, k]), axis=[k]), name)

    total = row_sum(vectors.read(rows, lambda i: load(data, i), zero, "row"), "sum")
    distances = vectors.filled(lambda i: load(data, i) - load(total, i[:-1]) * share, zero)
    distance = stage.compute((*rows, vectors.length), distances, "distance")
    squares = row_sum(lambda i: load(distance, i) * load(distance, i), "square_sum")
    scale = stage.compute(
        rows, lambda i: tirx.const(1.0, dtype) / tirx.sqrt(load(squares, i) * share + epsilon), "scale"
    )
    stage.define(node.output, lambda i: load(distance, i) * load(scale, i[:-1]))


def rms_norm(stage: Stage, node: Node) -> None:
    """Blocks "square_sum", "scale"."""
    value, dims = node.inputs[0], node.attrs["dims"]
    rows, count, dtype = value.shape[:-dims], prod(value.shape[-dims:]), value.dtype
    data = stage.tensor(value, "prologue")
    squares = _row_sum(stage, node, lambda i: load(data, i) * load(data, i), "square_sum")
    share, epsilon = tirx.const(1.0 / count, dtype), tirx.const(node.attrs["epsilon"], dtype)
    scale = stage.compute(
        rows, lambda i: tirx.const(1.0, dtype) / tirx.sqrt(load(squares, i) * share + epsilon), "scale"
    )
    stage.define(node.output, lambda i: load(data, i) * load(scale, i[: len(rows)]))


def _row_sum(stage: Stage, node: Node, element: Element, name: str) -> te.Tensor:
    value, dims = node.inputs[0], node.attrs.get("dims", 1)
    body = reduced_row(stage, value.shape[-dims:], value.dtype, element, "sum")
    return stage.compute(value.shape[:-dims], body, name)
