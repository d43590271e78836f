"""A TFLite model whose weights of integers beside floats are floats.

LiteRT rounds the activations of such layers while it runs, with XNNPACK and without: how far that moves
outputs shows only where the same layers have real weights.
"""

from __future__ import annotations

import math
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from host.importers.tflite.real_numbers import halves_of_bytes

_INTEGERS = (schema.TensorType.INT8, schema.TensorType.INT4)
_FLOAT = schema.TensorType.FLOAT32
# Larger files and more weights have no such form: it has to be below 2 GB, and is in memory twice.
_MOST_BYTES, _MOST = 1 << 29, 1 << 28


def with_real_weights(data: bytes) -> bytes | None:
    """The file in this form; None where no layer rounds its activations, or the weights are too many.

    Raises:
        Exception: a tensor does not fit its scales, or the file is none of TFLite; of any kind.
    """
    if len(data) > _MOST_BYTES:
        return None
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    graph = model.subgraphs[0]
    for buffer in model.buffers:
        if buffer.offset > 1:
            # Places in the file, which are others in the one that is made.
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    found = _beside_floats(graph)
    weights = [one for one in found if model.buffers[graph.tensors[one].buffer].data is not None]
    if not weights or sum(math.prod(map(int, graph.tensors[one].shape)) for one in weights) > _MOST:
        return None
    for index in weights:
        tensor = graph.tensors[index]
        made = schema.BufferT()
        made.data = _real(tensor, model.buffers[tensor.buffer].data).reshape(-1).view(np.uint8)
        model.buffers.append(made)
        tensor.buffer, tensor.type, tensor.quantization = len(model.buffers) - 1, _FLOAT, None
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _beside_floats(graph: Any) -> list[int]:
    """Tensors of integers that have scales and that nothing reads but operators on floats too."""
    beside: set[int] = set()
    others: set[int] = set()
    for operator in graph.operators:
        read = [int(index) for index in operator.inputs if index >= 0]
        floats = any(graph.tensors[index].type == _FLOAT for index in read)
        (beside if floats else others).update(read)
    return [
        index
        for index in sorted(beside - others)
        if graph.tensors[index].type in _INTEGERS
        and graph.tensors[index].sparsity is None
        and graph.tensors[index].quantization is not None
        and graph.tensors[index].quantization.scale is not None
    ]


def _real(tensor: Any, data: Any) -> np.ndarray:
    """What a tensor's integers stand for."""
    shape, parameters = tuple(map(int, tensor.shape)), tensor.quantization
    count = math.prod(shape)
    if tensor.type == schema.TensorType.INT4:
        values = halves_of_bytes(data[: (count + 1) // 2])[:count]
    else:
        values = np.asarray(data, np.uint8).view(np.int8)
    along = [-1 if place == parameters.quantizedDimension else 1 for place in range(len(shape))]
    given = (parameters.scale, [0] if parameters.zeroPoint is None else parameters.zeroPoint)
    numbers = [np.asarray(one, np.float32) for one in given]
    scale, zero = (one.reshape(along) if one.size > 1 else one.reshape(()) for one in numbers)
    made: np.ndarray = (values.reshape(shape) - zero) * scale
    return made
