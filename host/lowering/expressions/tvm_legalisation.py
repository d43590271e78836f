"""Operators that only TVM's own legalisation knows, one function each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te, tirx

from host.lowering.expressions.stage import Element, Stage, load
from host.lowering.graph import Node

# What a legalisation can raise: the call crosses the language border, which may change the class.
_REFUSALS = (TypeError, ValueError, RuntimeError, AttributeError, IndexError, NotImplementedError)


class NotOneExpressionError(Exception):
    """The operator's legalisation is more than one tensor expression; it stays an operator."""


class _Recorder:
    """Passed to a legalisation in place of a block builder; it keeps the tensor expression to add."""

    def __init__(self, tensors: dict[Any, te.Tensor]) -> None:
        self.tensors = tensors

    def call_te(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Evaluate the tensor expression on the stage's tensors instead of building a call."""
        kwargs.pop("primfunc_name_hint", None)
        kwargs.pop("primfunc_attrs", None)
        result = function(*self.translate(args), **{k: self.translate(v) for k, v in kwargs.items()})
        return _Result(result)

    def translate(self, argument: Any) -> Any:
        """Relax arguments as tensor expressions take them."""
        if argument in self.tensors if isinstance(argument, relax.Expr) else False:
            return self.tensors[argument]
        if isinstance(argument, relax.ShapeExpr):
            return [self.translate(v) for v in argument.values]
        if isinstance(argument, relax.Tuple):
            return [self.translate(field) for field in argument.fields]
        if isinstance(argument, list | tuple):
            return type(argument)(self.translate(field) for field in argument)
        return argument

    def emit(self, expression: Any) -> Any:
        """Fields of tuples are known; nothing else can be bound to a variable here."""
        if isinstance(expression, relax.TupleGetItem) and isinstance(expression.tuple_value, relax.Tuple):
            return expression.tuple_value.fields[expression.index]
        raise AttributeError("emit")


class _Result:
    def __init__(self, tensors: Any) -> None:
        self.tensors = tensors


def bound_call(node: Node) -> tuple[Any, list[Any]]:
    """The node's relax call on fresh variables, and those variables in the order of the inputs."""
    variables: list[Any] = []
    unread = list(node.inputs)

    def bind(argument: Any) -> Any:
        if isinstance(argument, relax.Tuple):
            return relax.Tuple([bind(field) for field in argument.fields])
        if isinstance(argument.ty, relax.TupleType):
            return relax.Tuple([fresh() for _ in argument.ty.fields])
        return fresh() if isinstance(argument.ty, relax.TensorType) else argument

    def fresh() -> Any:
        value = unread.pop(0)
        variables.append(relax.Var(f"x{len(variables)}", relax.TensorType(value.shape, value.dtype)))
        return variables[-1]

    template = node.template
    call = relax.Call(template.op, [bind(a) for a in template.args], template.attrs, template.ty_args)
    return call, variables


def write_with_tvm(stage: Stage, node: Node) -> None:
    """Write the operator's own tensor expression.

    Raises:
        NotOneExpressionError: it has none, or more than one.
    """
    legalise = tvm.ir.Op.get(node.op).get_attr("FLegalize")
    if legalise is None:
        raise NotOneExpressionError(node.op)
    call, variables = bound_call(node)
    call = relax.BlockBuilder().normalize(call)
    tensors = {
        variable: stage.tensor(value, "prologue")
        for variable, value in zip(variables, node.inputs, strict=True)
    }
    recorder = _Recorder(tensors)
    try:
        result = legalise(recorder, call)
    except _REFUSALS as error:
        # It wants more of a block builder than a recorder has; TVM's own pass gives it a real one.
        raise NotOneExpressionError(node.op) from error
    if not isinstance(result, _Result):
        raise NotOneExpressionError(node.op)
    made = result.tensors if isinstance(result.tensors, list | tuple) else [result.tensors]
    for value, tensor in zip(node.outputs, made, strict=True):
        if str(tensor.dtype) == value.dtype:
            stage.define_tensor(value, tensor)
        else:
            # argmax and others compute int32 positions where the operator says int64.
            stage.define(value, _cast(tensor, value.dtype))


def _cast(tensor: te.Tensor, dtype: str) -> Element:
    return lambda indices: tirx.Cast(dtype, load(tensor, indices))
