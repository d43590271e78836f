"""The walk over a relax function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.graph import Graph, Shape, Value
from host.lowering.reader import functions
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OperatorTable
from host.lowering.types import numeric_type
from host.model import Layer, layer_of

# Operators that relax has no name for are calls of functions with names that start so.
OWN_OPERATORS = "edgetlm."


def read(module: tvm.IRModule, operators: OperatorTable) -> Graph:
    """The graph of `module["main"]`.

    Args:
        module: with functions that `main` calls, if there are any.
        operators: what its relax operators become.

    Raises:
        LoweringError: control flow or a shape that is not known before the model runs.
    """
    module = relax.transform.InlinePrivateFunctions()(module) if _has_private(module) else module
    main = module["main"]
    reading = _Reading(module, operators)
    inputs = []
    for parameter in main.params:
        shape, dtype = _tensor_spec(parameter.ty, parameter.name)
        value = Value(shape, dtype, name=parameter.name)
        reading.environment[parameter] = value
        inputs.append(value)
    body = main.body
    if not isinstance(body, relax.SeqExpr):
        outputs = reading.argument(body)
        return reading.builder.graph(inputs, outputs)
    bindings = [binding for block in body.blocks for binding in block.bindings]
    for binding, layers in zip(bindings, _layers(bindings), strict=True):
        reading.builder.layers = layers
        reading.bind(binding)
    outputs = reading.argument(body.body)
    return reading.builder.graph(inputs, outputs, reading.functions)


def _layers(bindings: Sequence[Any]) -> list[tuple[Layer, ...]]:
    """The layer of each binding, as names of variables say.

    One without is a step on the way to the next that has one, or behind the last one.
    """
    known = [layer_of(binding.var.name) for binding in bindings]
    following = next((layer for layer in reversed(known) if layer is not None), None)
    found: list[tuple[Layer, ...]] = []
    for layer in reversed(known):
        following = layer or following
        found.append(() if following is None else (following,))
    return found[::-1]


def _has_private(module: tvm.IRModule) -> bool:
    return sum(isinstance(f, relax.Function) for f in module.functions.values()) > 1


class _Reading:
    """State of one walk: what each relax variable has become."""

    def __init__(self, module: tvm.IRModule, operators: OperatorTable) -> None:
        self.module = module
        self.builder = Builder(operators)
        self.environment: dict[Any, Any] = {}
        self.functions: dict[str, Any] = {}

    def bind(self, binding: Any) -> None:
        """Add the operation of one relax binding to the graph.

        Raises:
            LoweringError: the binding is a branch, or an operator that cannot be lowered.
        """
        value = binding.value
        if isinstance(value, relax.Call):
            result = self.call(value)
        elif isinstance(binding, relax.MatchCast):
            result = self.argument(value)
        elif isinstance(value, relax.If):
            raise LoweringError(
                "The model branches on a value that is known only when it runs; "
                "deploy it with --backend onnxruntime."
            )
        else:
            result = self.argument(value)
        self.environment[binding.var] = result

    def argument(self, expression: Any) -> Any:
        """Translate an argument: tensors to values, tuples to tuples, anything else stays."""
        if expression in self.environment:
            return self.environment[expression]
        if isinstance(expression, tvm.ir.GenericConst):
            value = _constant(expression)
            self.environment[expression] = value
            return value
        if isinstance(expression, relax.Tuple):
            return tuple(self.argument(field) for field in expression.fields)
        if isinstance(expression, relax.TupleGetItem):
            return self.argument(expression.tuple_value)[expression.index]
        if isinstance(expression, relax.Call):
            return self.call(expression)
        return expression

    def call(self, call: Any) -> Any:
        """Add the operation of a relax call to the graph; returns its value, or a tuple of them.

        Raises:
            LoweringError: no specification reads the operator.
        """
        if not isinstance(call.op, tvm.ir.Op):
            raise LoweringError(f"The model calls {call.op}, which is not an operator that can be lowered.")
        name = call.op.name.removeprefix("relax.")
        if isinstance(call.ty, relax.ShapeType) and call.ty.values is not None:
            return relax.ShapeExpr(call.ty.values)
        outputs = _output_specs(call.ty, name)
        arguments = tuple(self.argument(argument) for argument in call.args)
        if name == "call_dps_packed" and arguments[0].global_symbol.startswith(OWN_OPERATORS):
            # An operator that relax has no name for, from an importer of ours.
            name, arguments = arguments[0].global_symbol, arguments[1]
        view = OperatorCall(name, arguments, call.attrs, outputs, call)
        reader = self.builder.operators.readers.get(name)
        result = reader(self.builder, view) if reader else None
        if name == "call_tir":
            result = functions.bound(self.builder, view, self.module[call.args[0]])
        if result is None:
            result = self.opaque(view)
        return result

    def opaque(self, view: OperatorCall) -> Any:
        """An operator that only TVM's own legalisation knows, kept with its relax call."""
        if view.name == "call_tir":
            gv = view.expression.args[0]
            self.functions[gv.name_hint] = self.module[gv]
        call = view.expression
        resolved = [
            old if isinstance(new, Value | tuple) else new
            for old, new in zip(call.args, view.arguments, strict=True)
        ]
        is_tuple = isinstance(call.ty, relax.TupleType)
        template = relax.Call(call.op, resolved, call.attrs, call.ty_args)
        values = self.builder.emit(
            f"relax.{view.name}", tensors(view.arguments), {"tuple": is_tuple}, view.outputs, template
        )
        return values if is_tuple else values[0]


def tensors(arguments: Sequence[Any]) -> list[Value]:
    """The tensors among translated arguments, tuples flattened."""
    found: list[Value] = []
    for argument in arguments:
        if isinstance(argument, Value):
            found.append(argument)
        elif isinstance(argument, tuple):
            found.extend(tensors(argument))
    return found


def _constant(expression: Any) -> Value:
    # Shares memory with the relax constant: nothing is copied until a pass changes it.
    data = expression.value
    array = np.from_dlpack(data) if numeric_type(str(data.dtype)).shares_memory else data.numpy()
    return Value(tuple(array.shape), array.dtype.name, array)


def _output_specs(type_: Any, where: str) -> tuple[tuple[Shape, str], ...]:
    if isinstance(type_, relax.TupleType):
        return tuple(_tensor_spec(field, where) for field in type_.fields)
    if isinstance(type_, relax.TensorType):
        return (_tensor_spec(type_, where),)
    raise LoweringError(f"Operator {where} gives a {type_}, which cannot be lowered.")


def _tensor_spec(type_: Any, where: str) -> tuple[Shape, str]:
    if not isinstance(type_, relax.TensorType) or type_.shape is None:
        raise LoweringError(f"{where}: its shape is known only when the model runs; pin it with --shape.")
    dimensions = list(type_.shape)
    if not all(isinstance(d, (int, tvm.tirx.IntImm)) for d in dimensions):
        raise LoweringError(f"{where}: shape {type_.shape} is not fixed; pin it with --shape.")
    return tuple(int(d) for d in dimensions), str(type_.dtype)
