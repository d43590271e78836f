"""NumPy arrays from what travels, and back; for the engines that speak NumPy anyway."""

from __future__ import annotations

from typing import Any

import numpy

from device_agent.wire import TensorData


def to_array(tensor: TensorData) -> Any:
    """A writable array of its own memory."""
    if tensor.dtype == "bfloat16":
        raise ValueError("bfloat16 inputs are not supported by this engine")
    return numpy.frombuffer(bytearray(tensor.data), dtype=tensor.dtype).reshape(tensor.shape)


def from_array(array: Any) -> TensorData:
    """What travels of an array; keeps the shape of scalars."""
    # ascontiguousarray makes one dimension out of none.
    contiguous = numpy.asarray(array, order="C")
    return TensorData(tuple(contiguous.shape), str(contiguous.dtype), contiguous.tobytes())
