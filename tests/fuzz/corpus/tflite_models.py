"""TFLite models, small ones of a few kinds and files that are none."""

from __future__ import annotations

import functools
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.case import Case

MODEL = "model.tflite"
_F, _I8, _I32 = schema.TensorType.FLOAT32, schema.TensorType.INT8, schema.TensorType.INT32


def packed(model: Any) -> bytes:
    """The file of a model as objects."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def objects(data: bytes) -> Any:
    """A file as objects that can be changed."""
    return schema.ModelT.InitFromPackedBuf(data, 0)


@functools.cache
def seeds() -> tuple[bytes, ...]:
    """Valid models."""
    return tuple(packed(model) for model in (_dense(), _convolution(), _gather(), _quantized()))


@functools.cache
def cases() -> tuple[Case, ...]:
    """Files that are none, and numbers that point elsewhere."""
    found = {
        "head-only": b"\x1c\0\0\0TFL3",
        "text": b"not a model at all",
        "cut": seeds()[0][: len(seeds()[0]) // 2],
        "far": b"\xff\xff\xff\x7fTFL3" + bytes(200),
        "self": b"\x04\0\0\0TFL3" + bytes(64),
    }
    return tuple(Case(f"tflite-{name}", {MODEL: data}) for name, data in found.items())


class Graph:
    """A model that is put together tensor by tensor."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes = []
        self.model.buffers = [schema.BufferT()]
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.graph.name = b"main"
        self.model.subgraphs = [self.graph]

    def tensor(self, name: str, shape: tuple[int, ...], kind: int = _F, data: Any = None) -> int:
        """A tensor; a weight where there is data."""
        made = schema.TensorT()
        made.name, made.shape, made.type = name.encode(), list(shape), kind
        made.buffer = 0
        if data is not None:
            made.buffer = len(self.model.buffers)
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self.model.buffers.append(buffer)
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def operator(
        self, name: str, inputs: list[int], outputs: list[int], options: str = "", **values: Any
    ) -> None:
        """An operator with its options."""
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = 1
        self.model.operatorCodes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex = len(self.model.operatorCodes) - 1
        made.inputs, made.outputs = inputs, outputs
        if options:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            made.builtinOptions = getattr(schema, f"{options}T")()
            for key, value in values.items():
                setattr(made.builtinOptions, key, value)
        self.graph.operators.append(made)

    def done(self, inputs: list[int], outputs: list[int]) -> Any:
        """The model."""
        self.graph.inputs, self.graph.outputs = inputs, outputs
        return self.model


def _weights(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _dense() -> Any:
    made = Graph()
    x, y, z = made.tensor("x", (2, 4)), made.tensor("y", (2, 3)), made.tensor("z", (2, 3))
    w, b = made.tensor("w", (3, 4), data=_weights(3, 4)), made.tensor("b", (3,), data=_weights(3))
    made.operator("FULLY_CONNECTED", [x, w, b], [y], "FullyConnectedOptions", fusedActivationFunction=1)
    made.operator("SOFTMAX", [y], [z], "SoftmaxOptions", beta=1.0)
    return made.done([x], [z])


def _convolution() -> Any:
    made = Graph()
    x, y = made.tensor("x", (1, 6, 6, 2)), made.tensor("y", (1, 6, 6, 4))
    w, b = made.tensor("w", (4, 3, 3, 2), data=_weights(4, 3, 3, 2)), made.tensor("b", (4,), data=_weights(4))
    sizes = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1}
    made.operator("CONV_2D", [x, w, b], [y], "Conv2DOptions", padding=0, **sizes)
    pooled = made.tensor("p", (1, 3, 3, 4))
    sizes = {"strideW": 2, "strideH": 2, "filterWidth": 2, "filterHeight": 2}
    made.operator("MAX_POOL_2D", [y], [pooled], "Pool2DOptions", padding=1, **sizes)
    flat, to = made.tensor("f", (1, 36)), made.tensor("to", (2,), _I32, np.array([1, 36], np.int32))
    made.operator("RESHAPE", [pooled, to], [flat], "ReshapeOptions", newShape=[1, 36])
    return made.done([x], [flat])


def _gather() -> Any:
    made = Graph()
    x, y = made.tensor("x", (5,), _I32), made.tensor("y", (5, 4))
    table = made.tensor("table", (9, 4), data=_weights(9, 4))
    made.operator("GATHER", [table, x], [y], "GatherOptions", axis=0)
    mean, axes = made.tensor("m", (5,)), made.tensor("axes", (1,), _I32, np.array([1], np.int32))
    made.operator("MEAN", [y, axes], [mean], "ReducerOptions", keepDims=False)
    return made.done([x], [mean])


def gather(table: tuple[int, ...], indices: tuple[int, ...], operator: str, axis: int | None) -> Any:
    """A model whose input indexes a table of weights, along an axis where the operator has one."""
    made = Graph()
    if axis is None:
        options, values, shape = "GatherNdOptions", {}, (*indices[:-1], *table[indices[-1] :])
    else:
        options, values, place = "GatherOptions", {"axis": axis}, axis % len(table)
        shape = (*table[:place], *indices, *table[place + 1 :])
    x, y = made.tensor("x", indices, _I32), made.tensor("y", shape)
    made.operator(operator, [made.tensor("table", table, data=_weights(*table)), x], [y], options, **values)
    return made.done([x], [y])


def _quantized() -> Any:
    made = Graph()
    x, q, y = made.tensor("x", (2, 4)), made.tensor("q", (2, 4), _I8), made.tensor("y", (2, 4))
    scale = schema.QuantizationParametersT()
    scale.scale, scale.zeroPoint = [0.05], [3]
    made.graph.tensors[q].quantization = scale
    made.operator("QUANTIZE", [x], [q], "QuantizeOptions")
    made.operator("DEQUANTIZE", [q], [y], "DequantizeOptions")
    return made.done([x], [y])
