"""The arguments and results of converters of ONNX operators."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from host.errors import ImportFailed


@dataclass(frozen=True)
class Context:
    """The node that a converter converts, and the functions that it may use.

    Attributes:
        builder: emits intermediate expressions.
        operator: name of the operator.
        opset: version of the standard operators.
        outputs: names of the outputs, "" for those that are not used.
        output_shapes: shape of each output, None where inference does not know it.
        values: all values converted so far, by name.
    """

    builder: relax.BlockBuilder
    operator: str
    opset: int
    outputs: tuple[str, ...]
    output_shapes: tuple[tuple[int, ...] | None, ...]
    values: Mapping[str, Any]

    def emit(self, expression: relax.Expr) -> relax.Var:
        """Bind an expression to a variable."""
        return self.builder.emit(expression)

    def compute(self, function: Callable[..., Any], *tensors: Any) -> relax.Var:
        """Bind a tensor expression: `function` gets the tensors and returns the result."""
        return self.builder.emit_te(function, *tensors, primfunc_name_hint=self.operator.lower())

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of an output, from inference or from the model's own declaration.

        Raises:
            ImportFailed: it is not known.
        """
        shape = self.output_shapes[index] if index < len(self.output_shapes) else None
        if shape is None:
            raise self.fail("the shape of its output depends on the model's inputs")
        return shape

    def fail(self, reason: str) -> ImportFailed:
        """The error for a form of this operator that cannot be expressed."""
        return ImportFailed(f"operator {self.operator}: {reason}", self.operator)


Attributes = Mapping[str, Any]
Inputs = Sequence[Any]  # relax expressions, None for inputs left out
Converter = Callable[[Context, Inputs, Attributes], Any]


def bounded(value: Any) -> Any:
    """A whole number of an input, to count places by, within 2^31, which no tensor has.

    Sums with it and products with an index do not overflow: LLVM may leave out any bound behind what does.
    """
    limit = tirx.IntImm("int64", 1 << 31)
    return tirx.max(tirx.min(tirx.Cast("int64", value), limit), -limit)


def get(inputs: Inputs, index: int) -> Any:
    """An input, None if it is left out."""
    return inputs[index] if index < len(inputs) else None


def constant_value(expression: Any) -> np.ndarray | None:
    """The values of a constant, None for anything else."""
    return expression.value.numpy() if isinstance(expression, tvm.ir.GenericConst) else None


def known(context: Context, inputs: Inputs, index: int, what: str) -> np.ndarray | None:
    """The values of an input that must be constant; None if it is left out.

    Raises:
        ImportFailed: it depends on the model's inputs.
    """
    expression = get(inputs, index)
    if expression is None:
        return None
    value = constant_value(expression)
    if value is None:
        raise context.fail(f"{what} depends on the model's inputs")
    return value


def shape_of(context: Context, expression: Any) -> tuple[int, ...]:
    """The shape of a tensor.

    Raises:
        ImportFailed: it is not known.
    """
    kind = expression.ty
    if not isinstance(kind, relax.TensorType) or kind.shape is None:
        raise context.fail("the shape of an input is unknown")
    sizes = [getattr(size, "value", size) for size in kind.shape.values]
    if not all(isinstance(size, int) for size in sizes):
        raise context.fail("the shape of an input depends on values")
    return tuple(sizes)


def dtype_of(expression: Any) -> str:
    """Numpy dtype name of a tensor."""
    return str(expression.ty.dtype)


def constant(array: np.ndarray) -> relax.Expr:
    """A constant of exactly this type; `relax.const` makes int32 of int64 and float32 of float64."""
    return relax.const(tvm.runtime.tensor(np.require(array, requirements="C")))


def scalar(value: float | bool, dtype: str) -> relax.Expr:
    """A constant of shape [] and of this type."""
    return constant(np.array(value).astype(dtype))


@cache
def tvm_converters() -> Mapping[str, Any]:
    """TVM's converter classes by operator name."""
    return dict(onnx_frontend._get_convert_map())


def convert_with_tvm(context: Context, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Convert a node with TVM's converter of the same operator; what TVM prints is dropped."""
    arguments = onnx_frontend.onnx_input(inputs)
    extended = dict(attributes) | {
        "tvm_custom": {"name": context.operator, "num_outputs": len(context.outputs)}
    }
    function = tvm_converters()[context.operator].get_converter(context.opset)
    with contextlib.redirect_stdout(io.StringIO()):  # TVM prints what it then raises
        return function(context.builder, arguments, extended, [dict(context.values), {}])
