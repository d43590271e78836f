"""A TFLite model whose operators compute in real numbers, between the roundings that its file asks for.

LiteRT computes many quantised operators in one way only, with XNNPACK and without: it rounds the activations
of layers with weights of integers beside floats while it runs, and has tables and sums of fixed precision for
numbers of 16 bits, for softmax and for sums of other scales. How far that moves outputs shows only where the
same operators have real numbers, which is the form that the file is imported in.
"""

from __future__ import annotations

import math
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from host.importers.tflite.real_numbers import halves_of_bytes

_TYPES = schema.TensorType
_INTEGERS = frozenset({_TYPES.INT4, _TYPES.INT8, _TYPES.UINT8, _TYPES.INT16})
# Of biases, which are constants.
_SUMS = {_TYPES.INT32: np.int32, _TYPES.INT64: np.int64}
_NUMBERS = {_TYPES.INT8: np.int8, _TYPES.UINT8: np.uint8, _TYPES.INT16: np.int16, **_SUMS}
# Larger files and more weights have no such form: it has to be below 2 GB, and is in memory twice.
_MOST_BYTES, _MOST = 1 << 29, 1 << 28
_CODES = schema.BuiltinOperator
# Conversions, what has other graphs or no known form, and an average, which is exact.
_AS_THEY_ARE = frozenset(
    {_CODES.QUANTIZE, _CODES.DEQUANTIZE, _CODES.CAST, _CODES.BITCAST, _CODES.CUSTOM, _CODES.AVERAGE_POOL_2D}
    | {_CODES.IF, _CODES.WHILE, _CODES.CALL, _CODES.CALL_ONCE, _CODES.STABLEHLO_COMPOSITE}
)
# LiteRT looks up operators of a version; of these the numbers have been of all types since then.
_VERSION = 2


def in_real_numbers(data: bytes) -> bytes | None:
    """The file in this form; None where no operator is quantised, or the weights are too many.

    Raises:
        Exception: a tensor does not fit its scales, or the file is none of TFLite; of any kind.
    """
    if len(data) > _MOST_BYTES:
        return None
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    for buffer in model.buffers:
        if buffer.offset > 1:
            # Places in the file, which are others in the one that is made.
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    form = _Form(model)
    try:
        for operator in form.take_operators():
            form.add(operator)
    except _TooManyError:
        return None
    if not form.changed:
        return None
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class _TooManyError(Exception):
    """The weights are too many."""


class _Form:
    """The graph that is made, within the model that was read.

    Attributes:
        changed: whether an operator has real numbers that had others.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._graph = model.subgraphs[0]
        # Tensors in real numbers by those that stand for them, and operators' codes by what they do.
        self._real: dict[int, int] = {}
        self._added: dict[int, int] = {}
        self.changed = False
        # Of the weights that are real now.
        self._elements = 0

    def take_operators(self) -> list[Any]:
        """The operators in order; none are left in the graph."""
        found, self._graph.operators = list(self._graph.operators), []
        return found

    def add(self, operator: Any) -> None:
        """An operator, with its conversions around it."""
        code = self._model.operatorCodes[operator.opcodeIndex]
        given = [] if operator.inputs is None else [int(index) for index in operator.inputs]
        made = [] if operator.outputs is None else [int(index) for index in operator.outputs]
        # Files have the code in either field.
        kept = max(code.builtinCode, code.deprecatedBuiltinCode) in _AS_THEY_ARE
        kept = kept or any(index >= 0 and self._graph.tensors[index].isVariable for index in given)
        quantised = [index for index in (*given, *made) if self._stands(index)]
        if kept or not quantised:
            self._graph.operators.append(operator)
            return
        self.changed = True
        operator.inputs = [self._as_real(index) if self._stands(index) else index for index in given]
        after = {index: self._beside(index) for index in made if self._stands(index)}
        operator.outputs = [after.get(index, index) for index in made]
        self._graph.operators.append(operator)
        for index, real in after.items():
            self._convert(_CODES.QUANTIZE, real, index)

    def _stands(self, index: int) -> bool:
        """Whether a tensor's integers stand for real numbers."""
        if index < 0:
            return False
        tensor = self._graph.tensors[index]
        scaled = tensor.quantization is not None and tensor.quantization.scale is not None
        known = tensor.type in _INTEGERS or (tensor.type in _SUMS and self._data(tensor) is not None)
        return bool(scaled and known and tensor.sparsity is None)

    def _data(self, tensor: Any) -> Any:
        return self._model.buffers[tensor.buffer].data

    def _as_real(self, index: int) -> int:
        """The tensor in real numbers, which is converted once."""
        if index not in self._real:
            tensor = self._graph.tensors[index]
            data = self._data(tensor)
            self._real[index] = self._beside(index)
            if data is None:
                self._convert(_CODES.DEQUANTIZE, index, self._real[index])
            else:
                made = schema.BufferT()
                # Before they are made: many tensors may have one buffer.
                self._elements += math.prod(_shape(tensor))
                if self._elements > _MOST:
                    raise _TooManyError
                made.data = _real(tensor, data).reshape(-1).view(np.uint8)
                self._model.buffers.append(made)
                self._graph.tensors[self._real[index]].buffer = len(self._model.buffers) - 1
        return self._real[index]

    def _beside(self, index: int) -> int:
        """A tensor of floats of the shape of another."""
        tensor = self._graph.tensors[index]
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = tensor.name, tensor.shape, _TYPES.FLOAT32, 0
        made.shapeSignature, made.hasRank = tensor.shapeSignature, tensor.hasRank
        self._graph.tensors.append(made)
        return len(self._graph.tensors) - 1

    def _convert(self, code: int, read: int, written: int) -> None:
        if code not in self._added:
            made = schema.OperatorCodeT()
            made.builtinCode = made.deprecatedBuiltinCode = code
            made.version = _VERSION
            self._model.operatorCodes.append(made)
            self._added[code] = len(self._model.operatorCodes) - 1
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = self._added[code], [read], [written]
        self._graph.operators.append(operator)


def _real(tensor: Any, data: Any) -> np.ndarray:
    """What a constant's integers stand for."""
    shape, parameters = _shape(tensor), tensor.quantization
    count = math.prod(shape)
    if tensor.type == _TYPES.INT4:
        values = halves_of_bytes(data[: (count + 1) // 2])[:count]
    else:
        values = np.asarray(data, np.uint8).view(_NUMBERS[tensor.type])
    along = [-1 if place == parameters.quantizedDimension else 1 for place in range(len(shape))]
    given = (parameters.scale, [0] if parameters.zeroPoint is None else parameters.zeroPoint)
    numbers = [np.asarray(one, np.float64) for one in given]
    scale, zero = (one.reshape(along) if one.size > 1 else one.reshape(()) for one in numbers)
    if np.broadcast_shapes(shape, scale.shape, zero.shape) != shape:
        raise ValueError(f"{scale.size} scales and {zero.size} zero points of a tensor {shape}")
    made: np.ndarray = ((values.reshape(shape) - zero) * scale).astype(np.float32)
    return made


def _shape(tensor: Any) -> tuple[int, ...]:
    return () if tensor.shape is None else tuple(map(int, tensor.shape))
