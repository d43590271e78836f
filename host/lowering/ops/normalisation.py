"""Layer norm and RMS norm over the last `dims` dimensions, without scale and shift; attribute `epsilon`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import te, tirx

from host.lowering.builder import Builder
from host.lowering.expressions import math
from host.lowering.expressions.rows import row_sum
from host.lowering.expressions.stage import Element, Expression, Indices, Stage, load
from host.lowering.expressions.whole_vectors import WholeVectors
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.ops.forms import reduced_dims
from host.lowering.ops.norm_of_groups import behind_norm, over_rows_of_channels, sink_transpose_of_norm
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fold, Kind, OpSpec


def _read_layer_norm(builder: Builder, call: OperatorCall) -> Value | None:
    data = call.value(0)
    rank = len(data.shape)
    axes = sorted(normalise_axis(int(a), rank) for a in call.attrs.axes)
    if axes != list(range(rank - len(axes), rank)):
        return None
    epsilon = float(call.attrs.epsilon)
    norm = builder.unary("layer_norm", data, dims=len(axes), epsilon=epsilon)
    return builder.binary("add", builder.binary("multiply", norm, call.value(1)), call.value(2))


def _read_rms_norm(builder: Builder, call: OperatorCall) -> Value | None:
    data = call.value(0)
    rank = len(data.shape)
    axes = sorted(normalise_axis(int(a), rank) for a in call.attrs.axes)
    if axes != list(range(rank - len(axes), rank)):
        return None
    norm = builder.unary("rms_norm", data, dims=len(axes), epsilon=float(call.attrs.epsilon))
    return builder.binary("multiply", norm, call.value(1))


def _layer_norm(stage: Stage, node: Node) -> None:
    """Blocks "sum", "square_sum" (of distances from the mean), "scale"; scale and shift come after it."""
    value, dims = node.inputs[0], node.attrs["dims"]
    if dims == 1 and stage.any_length:
        vectors = WholeVectors(stage, value.shape[-1], value.dtype)
        if vectors.length != value.shape[-1]:
            _layer_norm_of_any_length(stage, node, vectors)
            return
    rows, count, dtype = value.shape[:-dims], prod(value.shape[-dims:]), value.dtype
    data = stage.tensor(value, "prologue")
    total = row_sum(stage, node, lambda i: load(data, i), "sum")
    share = tirx.const(1.0 / count, dtype)

    def squared(indices: Indices) -> Expression:
        return math.bind(
            load(data, indices) - load(total, indices[: len(rows)]) * share,
            lambda distance: distance * distance,
        )

    squares = row_sum(stage, node, squared, "square_sum")
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


def _rms_norm(stage: Stage, node: Node) -> None:
    """Blocks "square_sum" (of a row) and "scale" (1 / root mean square); the output multiplies by it."""
    value, dims = node.inputs[0], node.attrs["dims"]
    rows, count, dtype = value.shape[:-dims], prod(value.shape[-dims:]), value.dtype
    data = stage.tensor(value, "prologue")
    squares = row_sum(stage, node, lambda i: load(data, i) * load(data, i), "square_sum")
    share, epsilon = tirx.const(1.0 / count, dtype), tirx.const(node.attrs["epsilon"], dtype)
    scale = stage.compute(
        rows, lambda i: tirx.const(1.0, dtype) / tirx.sqrt(load(squares, i) * share + epsilon), "scale"
    )
    stage.define(node.output, lambda i: load(data, i) * load(scale, i[: len(rows)]))


def _divided_by_root(node: Node) -> tuple[Value, Value] | None:
    """D and u where `node` is d / sqrt(u) or d * rsqrt(u)."""
    if node.op == "divide":
        root = node.inputs[1].producer
        return (node.inputs[0], root.inputs[0]) if root is not None and root.op == "sqrt" else None
    if node.op == "multiply":
        for d, other in (node.inputs, node.inputs[::-1]):
            root = other.producer
            if root is not None and root.op == "rsqrt":
                return d, root.inputs[0]
            if root is not None and root.op in ("reciprocal", "divide"):
                inner = root.inputs[-1].producer
                one = root.op == "reciprocal" or root.inputs[0].scalar() == 1.0
                if one and inner is not None and inner.op == "sqrt":
                    return d, inner.inputs[0]
    return None


def _norm(builder: Builder, node: Node) -> Value | None:
    """(x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square + epsilon)."""
    parts = _divided_by_root(node)
    if parts is None or not node.output.is_float or parts[0].shape != node.output.shape:
        return None
    d, under = parts
    if under.producer is None or under.producer.op != "add":
        return None
    for spread, epsilon in (under.producer.inputs, under.producer.inputs[::-1]):
        number, mean = epsilon.scalar(), spread.producer
        if number is None or mean is None or mean.op not in ("mean", "variance"):
            continue
        dims = reduced_dims(mean, mean.inputs[0])
        if dims is None:
            continue
        x = _centred_source(d, dims)
        if x is not None and _is_variance(mean, d, x):
            return over_rows_of_channels(builder, x, dims, number)
        if mean.op == "mean" and _is_square(mean.inputs[0], d):
            return builder.unary("rms_norm", d, dims=dims, epsilon=number)
    return None


def _norm_as_scale_and_shift(builder: Builder, node: Node) -> Value | None:
    """X r - mean r with r = 1 / sqrt(variance + epsilon): layer norm written as BatchNorm is."""
    if node.op not in ("add", "subtract") or not node.output.is_float:
        return None
    for first, second in (node.inputs, node.inputs[::-1]) if node.op == "add" else (node.inputs,):
        scaled, shift = first.producer, second.producer
        if node.op == "add" and shift is not None:
            shift = shift.inputs[0].producer if shift.op == "negative" else None
        if scaled is None or shift is None or scaled.op != "multiply" or shift.op != "multiply":
            continue
        for x, r in (scaled.inputs, scaled.inputs[::-1]):
            mean = [value for value in shift.inputs if value is not r]
            result = _centred_norm(builder, x, mean[0], r) if len(mean) == 1 else None
            if result is not None and x.shape == node.output.shape:
                return result
    return None


def _centred_norm(builder: Builder, x: Value, mean: Value, r: Value) -> Value | None:
    """The layer norm of x where r is one over the root of its variance plus a number."""
    root, average = r.producer, mean.producer
    if root is None or average is None or root.op != "rsqrt" or average.op != "mean":
        return None
    dims = reduced_dims(average, x) if average.inputs[0] is x else None
    under = root.inputs[0].producer
    if dims is None or under is None or under.op != "add":
        return None
    for spread, epsilon in (under.inputs, under.inputs[::-1]):
        number, squares = epsilon.scalar(), spread.producer
        if number is None or squares is None or squares.op not in ("mean", "variance"):
            continue
        d = squares.inputs[0].producer
        centred = d is not None and _centred_source(d.inputs[0], dims) is x
        over_rows = reduced_dims(squares, squares.inputs[0]) == dims
        if over_rows and centred and d is not None and _is_variance(squares, d.inputs[0], x):
            return builder.unary("layer_norm", x, dims=dims, epsilon=number)
        if over_rows and squares.op == "variance" and squares.inputs[0] is x:
            return builder.unary("layer_norm", x, dims=dims, epsilon=number)
    return None


def _centred_source(d: Value, dims: int) -> Value | None:
    """X where d is x minus its mean over the last `dims` dimensions."""
    node = d.producer
    if node is None or node.op != "subtract":
        return None
    mean = node.inputs[1].producer
    if mean is None or mean.op != "mean" or mean.inputs[0] is not node.inputs[0]:
        return None
    return node.inputs[0] if reduced_dims(mean, node.inputs[0]) == dims else None


def _is_variance(mean: Node, d: Value, x: Value) -> bool:
    if mean.op == "variance":
        return mean.inputs[0] is x
    return _is_square(mean.inputs[0], d)


def _is_square(square: Value, d: Value) -> bool:
    node = square.producer
    if node is None:
        return False
    # The difference may have been written out twice.
    same = [value is d or _equal(value, d) for value in node.inputs]
    if node.op == "multiply":
        return all(same)
    return same[0] and (node.op == "square" or (node.op == "power" and node.inputs[1].scalar() == 2.0))


def _equal(left: Value, right: Value) -> bool:
    a, b = left.producer, right.producer
    return (
        a is not None
        and b is not None
        and a.op == b.op == "subtract"
        and a.inputs[0] is b.inputs[0]
        and _same_mean(a.inputs[1], b.inputs[1])
    )


def _same_mean(left: Value, right: Value) -> bool:
    a, b = left.producer, right.producer
    if left is right:
        return True
    return (
        a is not None
        and b is not None
        and a.op == b.op == "mean"
        and a.attrs == b.attrs
        and a.inputs[0] is b.inputs[0]
    )


def _fold(centred: bool) -> Fold:
    """The norm of constants, in double precision; around the mean of each row if `centred`."""

    def fold(inputs: Any, attrs: Any, shape: Any, dtype: str) -> Any:
        axes = tuple(range(-attrs["dims"], 0))
        rows = inputs[0].astype("float64")
        if centred:
            rows = rows - rows.mean(axes, keepdims=True)
        return rows / np.sqrt((rows * rows).mean(axes, keepdims=True) + attrs["epsilon"])

    return fold


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "layer_norm",
        Kind.ROW_WISE,
        {"nn.layer_norm": _read_layer_norm},
        _layer_norm,
        _fold(centred=True),
        recognise=(_norm, _norm_as_scale_and_shift, behind_norm),
        sink_transpose=sink_transpose_of_norm,
    ),
    OpSpec("rms_norm", Kind.ROW_WISE, {"nn.rms_norm": _read_rms_norm}, _rms_norm, _fold(centred=False)),
)
