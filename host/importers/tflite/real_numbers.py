"""Quantised tensors of a TFLite graph as the real numbers that they stand for.

Every operator gets real numbers and gives such; what it gives goes through the integers that the file says.
That is the form that other files have their quantised layers in, of which `host.lowering.passes.integers`
makes products of integers. TVM's own conversions of quantised tensors are of some operators and types only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tflite
from tvm import relax
from tvm.relax.frontend.tflite import tflite_frontend

from host.errors import ImportFailed

_QUANTISED = {
    tflite.TensorType.INT4: "int8",
    tflite.TensorType.INT8: "int8",
    tflite.TensorType.UINT8: "uint8",
    tflite.TensorType.INT16: "int16",
}
# Biases, which are in units of a product.
_SUMS = {tflite.TensorType.INT32: "int32", tflite.TensorType.INT64: "int64"}
# Operators on what the integers are, not on what they stand for.
_OF_BITS = frozenset({"BITCAST", "CAST"})
_AVERAGE = "AVERAGE_POOL_2D"
# Products of each element with fewer weights take less time than to round it.
_FEWEST_PRODUCTS = 64
# Of smaller layers the calls of what rounds take longer than they save.
_FEWEST_OF_A_LAYER = 1 << 19


@dataclass(frozen=True, eq=False)
class _Scheme:
    """How integers stand for real numbers: (integer - zero) * scale.

    Attributes:
        dtype: of the integers.
        scale, zero: one number, or one for each place along `axis`.
        axis: of the tensor.
    """

    dtype: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    def arguments(self) -> tuple[relax.Expr, relax.Expr, int]:
        """Scales, zero points and axis as relax takes them."""
        if self.scale.size == 1:
            scale, zero = self.scale.reshape(()), self.zero.reshape(())
        else:
            scale, zero = self.scale, self.zero
        return relax.const(scale, "float32"), relax.const(zero.astype(self.dtype), self.dtype), self.axis

    def real(self, values: np.ndarray) -> np.ndarray:
        """What constants stand for."""
        shape = [-1 if place == self.axis else 1 for place in range(values.ndim)]
        single = self.scale.size == 1
        scale, zero = (one.reshape(() if single else shape) for one in (self.scale, self.zero))
        made: np.ndarray = ((values.astype(np.int64) - zero) * scale.astype(np.float64)).astype(np.float32)
        return made


class _Real:
    """A tensor of the file that says that it is of real numbers."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)

    def Type(self) -> int:  # noqa: N802
        return int(tflite.TensorType.FLOAT32)

    def Quantization(self) -> None:  # noqa: N802
        return None


class RealNumbers(tflite_frontend.OperatorConverter):  # type: ignore[misc]  # TVM has no types
    """TVM's converter, which sees real numbers where the file has quantised tensors."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # By the tensor's number, as files may give several tensors one name.
        self._constants: dict[int, Any] = {}
        self._rounded_rows: dict[tuple[int, int], Any] = {}

    def convert_op_to_relax(self) -> None:
        """All operators; the model's own inputs and outputs stay integers where the file says so."""
        for index in map(int, self.subgraph.InputsAsNumpy()):
            scheme = self._scheme(index)
            if scheme is not None:
                name = tflite_frontend.get_tensor_name(self.subgraph, index)
                self.exp_tab.set_expr(name, self._dequantised(self.get_expr(index), scheme), True)
        super().convert_op_to_relax()
        for index in sorted({*map(int, self.subgraph.OutputsAsNumpy())}):
            scheme = self._scheme(index)
            if scheme is not None:
                name = tflite_frontend.get_tensor_name(self.subgraph, index)
                self.exp_tab.set_expr(name, self._quantised(self.get_expr(index), scheme), True)

    def get_tensors(self, tensors_idx_list: Any) -> list[Any]:
        """Tensors of an operator, quantised ones as real numbers."""
        found = []
        for index in map(int, self._indices_or_empty(tensors_idx_list)):
            if index < 0:
                found.append(tflite_frontend.TensorWrapper(index, 0, 0))
                continue
            tensor = self.subgraph.Tensors(index)
            seen = tensor if self._scheme(index) is None else _Real(tensor)
            buffer = self.model.Buffers(tensor.Buffer())
            found.append(tflite_frontend.TensorWrapper(index, seen, buffer))
        return found

    def has_expr(self, input_tensor_idx: int) -> bool:
        """Whether a tensor is an expression; quantised constants are, so that they keep their integers."""
        known = input_tensor_idx in self._constants or super().has_expr(input_tensor_idx)
        return bool(known) or self._constant(input_tensor_idx) is not None

    def get_expr(self, input_tensor_idx: int) -> Any:
        """The expression of a tensor."""
        if input_tensor_idx in self._constants:
            return self._constants[input_tensor_idx]
        constant = self._constant(input_tensor_idx)
        if constant is None:
            return super().get_expr(input_tensor_idx)
        values, scheme = constant
        if scheme.dtype in _SUMS.values():
            made = relax.const(scheme.real(values), "float32")
        else:
            made = self._dequantised(relax.const(values, scheme.dtype), scheme)
        self._constants[input_tensor_idx] = made
        return made

    def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> Any:
        """A constant's numbers, of a quantised one what they stand for."""
        constant = self._constant(tensor_wrapper.tensor_idx)
        if constant is None:
            return super().get_tensor_value(tensor_wrapper, is_sparse)
        values, scheme = constant
        return scheme.real(values)

    def convert_quantize(self, op: Any) -> Any:
        """The numbers as they are: what an operator gives is quantised in any case."""
        return self.get_tensor_expr(self.get_input_tensors(op)[0])

    def convert_dequantize(self, op: Any) -> Any:
        """The numbers as they are, or TVM's conversion of halves."""
        (tensor,) = self.get_input_tensors(op)
        if self._scheme(tensor.tensor_idx) is None:
            return super().convert_dequantize(op)
        return self.get_tensor_expr(tensor)

    def convert_fully_connected(self, op: Any) -> Any:
        """TVM's; of a layer of floats whose weights are integers, the activations are rounded by row.

        LiteRT does so in kernels of its own. `host.lowering.passes.integers.use_integers` makes a product of
        integers of it, and leaves the rounding out where the processor has none that is fast.
        """
        x, weight = (int(index) for index in op.InputsAsNumpy()[:2])
        constant = self._constant(weight)
        if constant is None or not self._rounds(op, constant) or constant[0].shape[0] < _FEWEST_PRODUCTS:
            return super().convert_fully_connected(op)
        return self._with_rounded(x, super().convert_fully_connected, op, int(constant[0].shape[-1]))

    def convert_conv(self, op: Any, conv_type: str) -> Any:
        """As `convert_fully_connected`, of one image and without groups: its rows are the image."""
        convert = partial(super().convert_conv, conv_type=conv_type)
        x, weight = (int(index) for index in op.InputsAsNumpy()[:2])
        constant = self._constant(weight)
        if conv_type != "conv2d" or constant is None or not self._rounds(op, constant):
            return convert(op)
        shape = [int(size) for size in self.subgraph.Tensors(x).ShapeAsNumpy()]
        channels, *taps, depth = constant[0].shape
        few = channels * math.prod(taps) < _FEWEST_PRODUCTS
        if few or shape[0] != 1 or shape[-1] != depth:
            return convert(op)
        return self._with_rounded(x, convert, op, math.prod(shape))

    def _rounds(self, op: Any, constant: tuple[np.ndarray, _Scheme]) -> bool:
        """Whether a layer reads floats beside weights of signed bytes, and is large enough."""
        values, scheme = constant
        x, made = int(op.Inputs(0)), self.subgraph.Tensors(int(op.Outputs(0)))
        products = math.prod(map(int, made.ShapeAsNumpy())) * (values.size // values.shape[0])
        is_read = self._scheme(x) is None and self.has_expr(x)
        return scheme.dtype == "int8" and is_read and products >= _FEWEST_OF_A_LAYER

    def _with_rounded(self, x: int, convert: Any, op: Any, row: int) -> Any:
        """An operator whose input has gone through bytes in rows of so many elements."""
        name = tflite_frontend.get_tensor_name(self.subgraph, x)
        kept = self.get_expr(x)
        if (x, row) not in self._rounded_rows:
            self._rounded_rows[x, row] = self._in_rows(kept, row)
        self.exp_tab.set_expr(name, self._rounded_rows[x, row], True)
        try:
            return convert(op)
        finally:
            self.exp_tab.set_expr(name, kept, True)

    def _in_rows(self, value: Any, row: int) -> Any:
        """Floats through signed bytes of the range of their row, with the zero in its middle."""
        shape = [int(size) for size in value.ty.shape]
        matrix = self.bb.emit(relax.op.reshape(value, (-1, row)))
        # Above zero, so that a row of zeros has a scale.
        bound = relax.const(float(np.finfo(np.float32).tiny) * 256, "float32")
        largest = self.bb.emit(relax.op.maximum(relax.op.max(relax.op.abs(matrix), 1), bound))
        factor = self.bb.emit(relax.op.divide(relax.const(127.0, "float32"), largest))
        scale = self.bb.emit(relax.op.multiply(largest, relax.const(1 / 127, "float32")))
        rows = int(matrix.ty.shape[0])
        scaled = self.bb.emit(relax.op.multiply(matrix, relax.op.reshape(factor, (rows, 1))))
        one, point = relax.const(1.0, "float32"), relax.const(0, "int8")
        whole = self.bb.emit(relax.op.quantize(scaled, one, point, axis=0, out_dtype="int8"))
        zero = relax.const(np.zeros(rows, np.int8), "int8")
        return self.bb.emit(relax.op.reshape(relax.op.dequantize(whole, scale, zero, axis=0), shape))

    def rounded(self, op: Any, name: str, result: Any) -> Any:
        """What an operator gives as the integers of the file say, in real numbers.

        Raises:
            ImportFailed: the operator is one of bits.
        """
        read = [int(index) for index in op.InputsAsNumpy() if index >= 0] if op.InputsLength() else []
        written = [int(index) for index in op.OutputsAsNumpy()] if op.OutputsLength() else []
        if name in _OF_BITS and any(self._scheme(index) is not None for index in (*read, *written)):
            raise ImportFailed(f"operator {name} of quantised tensors has no conversion", name)
        schemes = [self._scheme(index) for index in written]
        if result is None or not any(scheme is not None for scheme in schemes):
            return result
        if len(schemes) == 1:
            assert schemes[0] is not None
            if name == _AVERAGE:
                result = self._halves_from_zero(op, result, schemes[0])
            return self._through_integers(result, schemes[0])
        whole = self.bb.normalize(result)
        fields = [whole[place] for place in range(len(schemes))]
        return relax.Tuple(
            [
                one if scheme is None else self._through_integers(one, scheme)
                for one, scheme in zip(fields, schemes, strict=True)
            ]
        )

    def _halves_from_zero(self, op: Any, value: Any, scheme: _Scheme) -> Any:
        """An average that is rounded as the format's own kernels do, halves away from the integer zero.

        They divide sums of integers by their number. Averages of n integers are at least 1 / 2n of a step
        away from a half, or on it: half of that moves those on it alone.
        """
        options = tflite.Pool2DOptions()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        step = float(scheme.scale[0])
        moved = relax.const(step / (4.0 * options.FilterHeight() * options.FilterWidth()), "float32")
        zero = relax.const(-float(scheme.zero[0]) * step, "float32")
        value = self.bb.emit(value)
        up, down = relax.op.add(value, moved), relax.op.subtract(value, moved)
        return self.bb.emit(relax.op.where(relax.op.greater_equal(value, zero), up, down))

    def _through_integers(self, value: Any, scheme: _Scheme) -> Any:
        return self._dequantised(self._quantised(value, scheme), scheme)

    def _quantised(self, value: Any, scheme: _Scheme) -> Any:
        scale, zero, axis = scheme.arguments()
        return self.bb.emit(relax.op.quantize(value, scale, zero, axis=axis, out_dtype=scheme.dtype))

    def _dequantised(self, value: Any, scheme: _Scheme) -> Any:
        scale, zero, axis = scheme.arguments()
        return self.bb.emit(relax.op.dequantize(value, scale, zero, axis=axis))

    def _scheme(self, index: int) -> _Scheme | None:
        """How a tensor is quantised; None where it is not.

        Raises:
            ImportFailed: in a way that has no conversion.
        """
        tensor = self.subgraph.Tensors(index)
        parameters = tensor.Quantization()
        is_constant = not self.model.Buffers(tensor.Buffer()).DataIsNone()
        dtype = _QUANTISED.get(tensor.Type()) or (_SUMS.get(tensor.Type()) if is_constant else None)
        if parameters is None or dtype is None or parameters.ScaleIsNone():
            if parameters is not None and dtype is not None and parameters.DetailsType():
                raise ImportFailed("tensors that are quantised by blocks have no conversion")
            return None
        scale = parameters.ScaleAsNumpy().astype(np.float32)
        zero = np.zeros(1) if parameters.ZeroPointIsNone() else parameters.ZeroPointAsNumpy()
        if not scale.any():
            return None
        shape = () if tensor.ShapeIsNone() else tuple(map(int, tensor.ShapeAsNumpy()))
        axis = int(parameters.QuantizedDimension())
        if scale.size > 1 and (not 0 <= axis < len(shape) or shape[axis] != scale.size):
            raise ImportFailed(f"a tensor of shape {shape} has {scale.size} scales along axis {axis}")
        if zero.size not in (1, scale.size) or (zero.astype(dtype) != zero).any():
            raise ImportFailed(f"zero points {zero[:4].tolist()} are none of {scale.size} of {dtype}")
        return _Scheme(dtype, scale, np.broadcast_to(zero, scale.shape), axis if scale.size > 1 else 0)

    def _constant(self, index: int) -> tuple[np.ndarray, _Scheme] | None:
        """Integers of a quantised constant, and what they stand for."""
        if index < 0:
            return None
        tensor = self.subgraph.Tensors(index)
        buffer = self.model.Buffers(tensor.Buffer())
        scheme = None if buffer.DataIsNone() else self._scheme(index)
        if scheme is None:
            return None
        shape = () if tensor.ShapeIsNone() else tuple(map(int, tensor.ShapeAsNumpy()))
        data = buffer.DataAsNumpy()
        if tensor.Type() == tflite.TensorType.INT4:
            count = math.prod(shape)
            values = halves_of_bytes(data[: (count + 1) // 2])[:count]
        else:
            values = data.view(scheme.dtype)
        return values.reshape(shape), scheme


def halves_of_bytes(data: Sequence[int]) -> np.ndarray:
    """Signed numbers of four bits, of which each byte has two, the lower one first."""
    given = np.asarray(data, np.uint8)
    parts = np.stack([given & 15, given >> 4], axis=-1).reshape(-1).astype(np.int8)
    made: np.ndarray = np.where(parts > 7, parts - 16, parts).astype(np.int8)
    return made
