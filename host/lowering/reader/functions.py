"""Reads calls of TensorIR functions that an importer wrote where it could have named an operator."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from host.lowering.builder import Builder
from host.lowering.graph import Value, broadcast_shape
from host.lowering.reader.call import OperatorCall


def bound(builder: Builder, call: OperatorCall, function: tirx.PrimFunc) -> Value | None:
    """An elementwise maximum or minimum (TVM's ONNX frontend writes Clip so), or None for anything else."""
    value = _stored_value(function)
    op = {tirx.Max: "maximum", tirx.Min: "minimum"}.get(type(value))
    arguments = call.arguments[1]
    if op is None or not isinstance(arguments, tuple) or len(arguments) != 2:
        return None
    left, right = arguments
    parameters = [function.params[0].name, function.params[1].name]
    loads = [value.a, value.b]
    if not all(isinstance(load, tvm.ir.TensorLoad) for load in loads):
        return None
    if [load.source.name for load in loads] != parameters:
        return None
    if broadcast_shape(left.shape, right.shape) != call.shape:
        return None
    return builder.binary(op, left, right)


def _stored_value(function: tirx.PrimFunc) -> Any:
    """What the only block of a function stores."""
    statement = function.body
    if isinstance(statement, s_tir.SBlockRealize):
        if len(statement.block.alloc_buffers):
            return None
        statement = statement.block.body
    while isinstance(statement, tirx.For):
        statement = statement.body
    if isinstance(statement, s_tir.SBlockRealize):
        statement = statement.block.body
    return statement.value if isinstance(statement, tirx.BufferStore) else None
