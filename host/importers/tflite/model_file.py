"""Reading a TFLite file: its inputs, outputs and weights, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from host.errors import ModelFileError
from host.importers.parameters import is_parameter
from host.importers.pins import DeclaredInput
from host.importers.tflite.whole_model import WholeModel

_DTYPES = {
    tflite.TensorType.FLOAT32: "float32",
    tflite.TensorType.FLOAT16: "float16",
    tflite.TensorType.FLOAT64: "float64",
    tflite.TensorType.INT8: "int8",
    tflite.TensorType.INT16: "int16",
    tflite.TensorType.INT32: "int32",
    tflite.TensorType.INT64: "int64",
    tflite.TensorType.UINT8: "uint8",
    tflite.TensorType.UINT16: "uint16",
    tflite.TensorType.UINT32: "uint32",
    tflite.TensorType.UINT64: "uint64",
    tflite.TensorType.BOOL: "bool",
}

# Of `builtin_code` in a table of `OperatorCode`.
_WIDE_CODE = 10
# Operators with a table and indices into it, and at which places among their inputs these are.
_GATHERS = {"GATHER": (0, 1), "GATHER_ND": (0, 1), "EMBEDDING_LOOKUP": (1, 0)}
_PASSING = {
    "CAST",
    "RESHAPE",
    "SQUEEZE",
    "EXPAND_DIMS",
    "TRANSPOSE",
    "SLICE",
    "STRIDED_SLICE",
    "BROADCAST_TO",
}


@dataclass(frozen=True, eq=False)
class TfliteFile:
    """A TFLite model, read.

    Attributes:
        model: the flat buffer's root.
        inputs: what a caller has to give, in order.
        default_shapes: shape by input name that the file's own tensors have.
        output_names: in order.
        tables: for an integer input, sizes of the tables that it indexes, by name.
        parameters: elements of its weights.
        quantised: whether it computes with integers that stand for real numbers.
        classes: outputs that have no scale, by index: integers among them stand for no real numbers.
    """

    model: Any
    inputs: tuple[DeclaredInput, ...]
    default_shapes: dict[str, tuple[int, ...]]
    output_names: tuple[str, ...]
    tables: dict[str, list[int]]
    parameters: int
    quantised: bool
    classes: tuple[int, ...] = ()


def read_tflite(path: Path) -> TfliteFile:
    """Read and check a file.

    Raises:
        ModelFileError: not a TFLite model, truncated, or with NaN weights.
    """
    if path.stat().st_size >= 1 << 31:
        raise ModelFileError(f"{path}: a TFLite file has at most 2 GB: convert the model again")
    data = path.read_bytes()
    try:
        model = WholeModel.of(data)
        graph = model.Subgraphs(0)
        _check_weights(path, model, graph)
        inputs = [graph.Tensors(int(index)) for index in graph.InputsAsNumpy()]
        outputs = [graph.Tensors(int(index)) for index in graph.OutputsAsNumpy()]
        return TfliteFile(
            model,
            tuple(_declared(tensor) for tensor in inputs),
            {_name(tensor): _shape(tensor) for tensor in inputs},
            tuple(_name(tensor) for tensor in outputs),
            {
                _name(graph.Tensors(int(index))): _tables(model, graph, int(index))
                for index in graph.InputsAsNumpy()
            },
            _parameters(model, graph),
            any(_is_quantised(graph.Tensors(index)) for index in range(graph.TensorsLength())),
            tuple(place for place, tensor in enumerate(outputs) if not _is_quantised(tensor)),
        )
    except ModelFileError:
        raise
    except Exception as error:  # reading past the end raises whatever struct, numpy or flatbuffers raise
        raise ModelFileError(
            f"{path}: not a TFLite model, or a truncated one: convert or download the file again"
        ) from error


def _name(tensor: Any) -> str:
    return str(tensor.Name().decode("utf-8"))


def _shape(tensor: Any) -> tuple[int, ...]:
    return () if tensor.ShapeIsNone() else tuple(int(size) for size in tensor.ShapeAsNumpy())


def _declared(tensor: Any) -> DeclaredInput:
    shape: tuple[int | str, ...] = _shape(tensor)
    if tensor.ShapeSignatureLength() == len(shape) and shape:
        shape = tuple(int(size) if size >= 0 else "" for size in tensor.ShapeSignatureAsNumpy())
    return DeclaredInput(_name(tensor), shape, _DTYPES.get(tensor.Type(), "str"))


def _check_weights(path: Path, model: Any, graph: Any) -> None:
    """Touch every buffer, which finds a truncated file, and look for NaN."""
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        buffer = model.Buffers(tensor.Buffer())
        if buffer is None or buffer.DataIsNone():
            continue
        data = buffer.DataAsNumpy()
        if tensor.Type() == tflite.TensorType.FLOAT32 and data.size and np.isnan(data.view(np.float32).min()):
            raise ModelFileError(
                f"{path}: weight {_name(tensor)!r} holds NaN: the model cannot give useful outputs"
            )
    for index in range(graph.OperatorsLength()):
        graph.Operators(index).InputsAsNumpy()


def _is_quantised(tensor: Any) -> bool:
    parameters = tensor.Quantization()
    return parameters is not None and not parameters.ScaleIsNone()


def _parameters(model: Any, graph: Any) -> int:
    """Elements of the weights; tensors that share a buffer are counted once."""
    found: dict[int, int] = {}
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        buffer = model.Buffers(tensor.Buffer())
        shape = _shape(tensor)
        if buffer is not None and not buffer.DataIsNone():
            counted = is_parameter(shape, _DTYPES.get(tensor.Type(), "str"))
            found[tensor.Buffer()] = math.prod(shape) if counted else 0
    return sum(found.values())


def operator_name(model: Any, operator: Any) -> str:
    """The name of an operator of the graph, `CONV_2D` for example."""
    code = model.OperatorCodes(operator.OpcodeIndex())
    number = max(_builtin_code(code), code.DeprecatedBuiltinCode())
    if number == tflite.BuiltinOperator.CUSTOM:
        return str(code.CustomCode().decode("utf-8"))
    for name, value in vars(tflite.BuiltinOperator).items():
        if isinstance(value, int) and value == number:
            return str(name)
    return f"number {number}"


def _builtin_code(code: Any) -> int:
    """The number in the wider field of an operator's code; 0 where it has none.

    The package gives the one in the narrow field for numbers below 127, which quantisers leave out.
    """
    offset = int(code._tab.Offset(_WIDE_CODE))
    place = offset + code._tab.Pos
    return int.from_bytes(code._tab.Bytes[place : place + 4], "little", signed=True) if offset else 0


def _tables(model: Any, graph: Any, tensor: int) -> list[int]:
    """Sizes of the tables that the values of a tensor index."""
    carriers: set[int] = {tensor}
    sizes: list[int] = []
    for position in range(graph.OperatorsLength()):
        operator = graph.Operators(position)
        name, inputs = operator_name(model, operator), [int(index) for index in operator.InputsAsNumpy()]
        if name in _GATHERS and inputs[_GATHERS[name][1]] in carriers:
            table, indices = (_shape(graph.Tensors(inputs[place])) for place in _GATHERS[name])
            sizes += _indexed(name, operator, table, indices)
        elif name in _PASSING and inputs[0] in carriers:
            carriers.update(int(index) for index in operator.OutputsAsNumpy())
    return sizes


def _indexed(name: str, operator: Any, table: tuple[int, ...], indices: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of the axes of a table that indices count along."""
    if name == "GATHER_ND":
        return table[: indices[-1]] if indices else ()
    axis, options = 0, operator.BuiltinOptions()
    if name == "GATHER" and options is not None:
        gather = tflite.GatherOptions()
        gather.Init(options.Bytes, options.Pos)
        axis = gather.Axis()
    return (table[axis],) if -len(table) <= axis < len(table) else ()
