"""The parts of specifications that many operations share: readers, folds and expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.graph import Node, Value
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fold, Kind, OpSpec, Reader, Recogniser, Simplification
from host.lowering.types import numeric_type

# One element of the output of one element of each input, the node's attributes, and the type of the output.
ElementExpression = Callable[[Sequence[Expression], Mapping[str, Any], str], Expression]


def elementwise(
    name: str,
    expression: ElementExpression,
    read: Mapping[str, Reader] | None = None,
    fold: Callable[..., Any] | None = None,
    simplify: Simplification | None = None,
    recognise: tuple[Recogniser, ...] = (),
    output_type: str | None = None,
) -> OpSpec:
    """The specification of an elementwise operation.

    Args:
        name: of the operation.
        expression: of one element.
        read: see `OpSpec`; by default relax's operator of that name.
        fold: of numpy arrays, without attributes.
        simplify: see `OpSpec`.
        recognise: see `OpSpec`.
        output_type: see `OpSpec`.
    """

    def write(stage: Stage, node: Node) -> None:
        def element(indices: Indices) -> Expression:
            # A value that is read twice is one expression, which tells x - x from x - y.
            args = {
                value: stage.broadcast_element(value, node.output.shape, indices) for value in node.inputs
            }
            return expression([args[value] for value in node.inputs], node.attrs, node.output.dtype)

        stage.define(node.output, element)

    return OpSpec(
        name,
        Kind.ELEMENTWISE,
        read={name: read_as(name)} if read is None else read,
        write=write,
        fold=None if fold is None else on_arrays(fold),
        simplify=simplify,
        recognise=recognise,
        output_type=output_type,
    )


def read_as(name: str) -> Reader:
    """A reader of tensors only: the operation has no attributes."""

    def read(builder: Builder, call: OperatorCall) -> Value:
        inputs = [call.value(index) for index in range(len(call.arguments))]
        return builder.one(name, inputs, call.shape, call.dtype)

    return read


def on_arrays(function: Callable[..., Any]) -> Fold:
    """A fold that depends on nothing but the arrays."""
    return lambda inputs, attrs, shape, dtype: function(*inputs)


def of_one(function: Callable[[Expression], Expression]) -> ElementExpression:
    """The expression of a function of one element."""
    return lambda args, attrs, dtype: function(args[0])


def single_or(single: Callable[[Expression], Expression], other: ElementExpression) -> ElementExpression:
    """Formulas of `expressions.math`, which hold for fp32 only, and the compiler's own for other floats."""
    return lambda args, attrs, dtype: single(args[0]) if dtype == "float32" else other(args, attrs, dtype)


def number(value: float, dtype: str) -> Expression:
    """A constant of this numeric type."""
    return tirx.const(int(value) if numeric_type(dtype).is_integer else float(value), dtype)


def integer(value: np.ndarray) -> bool:
    """Whether an array holds no floats."""
    return not np.issubdtype(value.dtype, np.floating)


def reduced_dims(node: Node, value: Value) -> int | None:
    """How many last dimensions a reduction with kept dimensions goes over."""
    axes, rank = node.attrs["axes"], len(value.shape)
    if not node.attrs["keepdims"] or axes != tuple(range(rank - len(axes), rank)) or not axes:
        return None
    return len(axes)
