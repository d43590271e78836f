"""Reductions over given axes; attributes `axes` and `keepdims`."""

from __future__ import annotations

from math import nan, prod
from typing import Any

import numpy as np
from tvm import te

from host.lowering.builder import Builder
from host.lowering.expressions.rows import COMBINE, reduced_row, scaled
from host.lowering.expressions.stage import Element, Expression, Indices, Stage, load
from host.lowering.graph import Node, Value, normalise_axis
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fold, Kind, OpSpec, Reader

# Of no elements; of extremes there is none.
_OF_NOTHING = {"sum": 0.0, "prod": 1.0, "mean": nan}


def _read_as(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        value = call.value(0)
        rank = len(value.shape)
        axes = call.attrs.axis
        chosen = range(rank) if axes is None else [normalise_axis(int(a), rank) for a in axes]
        empty = [int(axis in chosen and value.shape[axis] == 0) for axis in range(rank)]
        if any(empty) and name in _OF_NOTHING:
            # A loop of no iterations would be left out, with what the result begins with.
            value = builder.pad(value, (0,) * rank, tuple(empty), _OF_NOTHING[name])
        return builder.one(
            name,
            [value],
            call.shape,
            call.dtype,
            axes=tuple(sorted(set(chosen))),
            keepdims=bool(call.attrs.keepdims),
        )

    return read


def _standard_deviation(builder: Builder, call: OperatorCall) -> Value:
    variance = _read_as("variance")(builder, call)
    assert isinstance(variance, Value)
    return builder.unary("sqrt", variance)


def _simplify(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Reductions keep their dimensions and leave out those of size 1; a view gives the wanted shape."""
    shape = inputs[0].shape
    axes = tuple(axis for axis in node.attrs["axes"] if shape[axis] != 1)
    if node.attrs["keepdims"] and axes == node.attrs["axes"]:
        return None
    if not axes:
        return None if node.op == "variance" else builder.reshape(inputs[0], node.output.shape)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    result = builder.one(node.op, inputs, kept, node.output.dtype, axes=axes, keepdims=True)
    return builder.reshape(result, node.output.shape)


def _write(stage: Stage, node: Node) -> None:
    """sum, mean, max, min, prod: one block of that name ("sum" for mean)."""
    value, axes = node.inputs[0], node.attrs["axes"]
    if node.op == "variance":
        _variance(stage, node)
        return
    kind = "sum" if node.op == "mean" else node.op
    result = _reduced(stage, node, lambda i: stage.element(value, i), kind, kind)
    if node.op == "mean":
        count = prod(value.shape[axis] for axis in axes)
        stage.define(node.output, lambda i: scaled(load(result, i), count, value.dtype))
    else:
        stage.define_tensor(node.output, result)


def _reduced(stage: Stage, node: Node, element: Element, kind: str, name: str) -> te.Tensor:
    """A block that reduces `element`, which takes an index for each axis of the node's input."""
    value, keepdims = node.inputs[0], node.attrs["keepdims"]
    rank, axes = len(value.shape), sorted(node.attrs["axes"])
    kept = rank - len(axes)
    if axes and axes[0] == kept:
        row = reduced_row(stage, value.shape[kept:], value.dtype, element, kind)
        return stage.compute(node.output.shape, lambda indices: row(indices[:kept]), name)
    reduced = {axis: te.reduce_axis((0, value.shape[axis]), f"k{axis}") for axis in axes}

    def body(indices: Indices) -> Expression:
        outer = iter(indices)
        source = []
        for axis in range(rank):
            if axis in reduced:
                source.append(reduced[axis])
                if keepdims:
                    next(outer)
            else:
                source.append(next(outer))
        if not reduced:
            return element(source)
        # A reduction is the whole of its expression: names for shared values go inside.
        return COMBINE[kind](stage.scoped(lambda: element(source)), axis=list(reduced.values()))

    return stage.compute(node.output.shape, body, name)


def _variance(stage: Stage, node: Node) -> None:
    """Mean square distance from the mean, in two passes."""
    value, axes = node.inputs[0], node.attrs["axes"]
    count = prod(value.shape[axis] for axis in axes)
    total = _reduced(stage, node, lambda i: stage.element(value, i), "sum", "sum")

    def squared(indices: Indices) -> Expression:
        if node.attrs["keepdims"]:
            place = [0 if axis in axes else i for axis, i in enumerate(indices)]
        else:
            place = [i for axis, i in enumerate(indices) if axis not in axes]
        distance = stage.element(value, indices) - scaled(load(total, place), count, value.dtype)
        return distance * distance

    result = _reduced(stage, node, squared, "sum", "square_sum")
    stage.define(node.output, lambda i: scaled(load(result, i), count, value.dtype))


def _fold(name: str) -> Fold:
    function = getattr(np, name)

    def fold(inputs: Any, attrs: Any, shape: Any, dtype: str) -> Any:
        return function(inputs[0], axis=tuple(attrs["axes"]), keepdims=attrs["keepdims"])

    return fold


SPECS: tuple[OpSpec, ...] = (
    *(
        OpSpec(name, Kind.REDUCTION, {name: _read_as(name)}, _write, _fold(name), _simplify)
        for name in ("sum", "mean", "max", "min", "prod")
    ),
    OpSpec("variance", Kind.REDUCTION, {"variance": _read_as("variance")}, _write, simplify=_simplify),
    OpSpec("std", read={"std": _standard_deviation}),
)
