"""Layer norm and RMS norm over the last `dims` dimensions, without scale and shift; attribute `epsilon`."""

from __future__ import annotations

from math import prod

from tvm import te, tirx

from host.lowering.builder import Builder
from host.lowering.expressions import math
from host.lowering.expressions.rows import row_sum
from host.lowering.expressions.stage import Element, Expression, Indices, Stage, load
from host.lowering.expressions.whole_vectors import WholeVectors
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.ops.normalisation_forms import norm, norm_as_scale_and_shift
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Kind, OpSpec


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
    """Blocks "square_sum", "scale"."""
    value, dims = node.inputs[0], node.attrs["dims"]
    rows, count, dtype = value.shape[:-dims], prod(value.shape[-dims:]), value.dtype
    data = stage.tensor(value, "prologue")
    squares = row_sum(stage, node, lambda i: load(data, i) * load(data, i), "square_sum")
    share, epsilon = tirx.const(1.0 / count, dtype), tirx.const(node.attrs["epsilon"], dtype)
    scale = stage.compute(
        rows, lambda i: tirx.const(1.0, dtype) / tirx.sqrt(load(squares, i) * share + epsilon), "scale"
    )
    stage.define(node.output, lambda i: load(data, i) * load(scale, i[: len(rows)]))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "layer_norm",
        Kind.ROW_WISE,
        {"nn.layer_norm": _read_layer_norm},
        _layer_norm,
        recognise=(norm, norm_as_scale_and_shift),
    ),
    OpSpec("rms_norm", Kind.ROW_WISE, {"nn.rms_norm": _read_rms_norm}, _rms_norm),
)
