"""Softmax and its logarithm along the last dimension."""

from __future__ import annotations

from math import inf

import numpy as np
from tvm import te, tirx

from host.lowering.attention.guards import guard_behind_product, without_guard
from host.lowering.builder import Builder
from host.lowering.expressions import math
from host.lowering.expressions.rows import reduced_row, row_sum
from host.lowering.expressions.stage import Stage, load
from host.lowering.expressions.whole_vectors import WholeVectors
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.ops.forms import reduced_dims
from host.lowering.passes.integers.softmax_scale import softmax_scale
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import GraphPass, Kind, OpSpec, Phase, Reader


def _along_last(builder: Builder, op: str, value: Value, axis: int) -> Value:
    """An operation over one axis, with that axis last."""
    rank = len(value.shape)
    axis = normalise_axis(axis, rank)
    order = [a for a in range(rank) if a != axis] + [axis]
    result = builder.unary(op, builder.transpose(value, order))
    return builder.transpose(result, np.argsort(order).tolist())


def _read_as(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        return _along_last(builder, name, call.value(0), int(call.attrs.axis))

    return read


def _quotient_of_powers(builder: Builder, node: Node) -> Value | None:
    """exp(x - max) / sum(exp(x - max)) along the last axis; without the maximum it is the same number."""
    if node.op != "divide":
        return None
    powers, total = node.inputs[0].producer, node.inputs[1].producer
    if powers is None or total is None or powers.op != "exp" or total.op != "sum":
        return None
    if total.inputs[0] is not node.inputs[0] or reduced_dims(total, total.inputs[0]) != 1:
        return None
    x = powers.inputs[0]
    shifted = x.producer
    if shifted is not None and shifted.op == "subtract":
        source, largest = shifted.inputs[0], shifted.inputs[1].producer
        over_rows = largest is not None and largest.op == "max" and largest.inputs[0] is source
        if over_rows and largest is not None and reduced_dims(largest, source) == 1:
            x = source
    return builder.unary("softmax", x) if x.is_float else None


def _softmax(stage: Stage, node: Node) -> None:
    """Blocks "max", "exp", "sum", "reciprocal"; the product of the last two is a formula.

    A row that is no whole number of vectors is read as one that is, with values of no weight among its own.
    """
    value = node.inputs[0]
    rows, dtype = value.shape[:-1], value.dtype
    data, vectors = stage.tensor(value, "prologue"), WholeVectors(stage, value.shape[-1], dtype)
    # Not the least number, which a row of excluded scores may be throughout: the share of each would be less.
    element = vectors.read(rows, lambda i: load(data, i), tirx.const(-inf, dtype), "row")
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


def _log_softmax(stage: Stage, node: Node) -> None:
    """Blocks "max", "sum", "log"; the differences are a formula."""
    value = node.inputs[0]
    rows, size, dtype = value.shape[:-1], value.shape[-1], value.dtype
    data = stage.tensor(value, "prologue")
    exponential, logarithm = (
        (math.exp_of_nonpositive, math.log) if dtype == "float32" else (tirx.exp, tirx.log)
    )
    greatest = reduced_row(stage, (size,), dtype, lambda i: load(data, i), "max")
    largest = stage.compute(rows, greatest, "max")
    total = row_sum(stage, node, lambda i: exponential(load(data, i) - load(largest, i[:-1])), "sum")
    logarithms = stage.compute(rows, lambda i: logarithm(load(total, i)), "log")
    stage.define(node.output, lambda i: load(data, i) - load(largest, i[:-1]) - load(logarithms, i[:-1]))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "softmax",
        Kind.ROW_WISE,
        {"nn.softmax": _read_as("softmax")},
        _softmax,
        recognise=(_quotient_of_powers, without_guard, guard_behind_product),
        passes=(GraphPass(Phase.READ, lambda graph, hardware: softmax_scale(graph)),),
    ),
    OpSpec("log_softmax", Kind.ROW_WISE, {"nn.log_softmax": _read_as("log_softmax")}, _log_softmax),
)
