"""Converts tensors to NumPy arrays and back, for the engines whose interface is NumPy."""

from __future__ import annotations

from typing import Any

import numpy

from device_agent.errors import AgentError
from device_agent.wire.frames import ITEM_BYTES, TensorData


def to_array(tensor: TensorData) -> Any:
    """A writable array with its own memory.

    Raises:
        AgentError: NumPy has no such element type.
    """
    try:
        # Engines do not know element types that another library has added to NumPy.
        known = numpy.dtype(tensor.dtype).isbuiltin == 1
    except TypeError:
        known = False
    if not known:
        raise AgentError("engine", "this engine takes no inputs of type %s" % tensor.dtype)
    return numpy.frombuffer(bytearray(tensor.data), dtype=tensor.dtype).reshape(tensor.shape)


def from_array(array: Any) -> TensorData:
    """The tensor of an array, with the same shape; scalars remain scalars.

    Raises:
        AgentError: the elements are not numbers (text, sequences, maps).
    """
    # ascontiguousarray would turn a scalar into an array with one dimension.
    contiguous = numpy.asarray(array, order="C")
    if str(contiguous.dtype) not in ITEM_BYTES:
        raise AgentError("engine", "an output of type %s cannot be sent" % contiguous.dtype)
    return TensorData(tuple(contiguous.shape), str(contiguous.dtype), contiguous.tobytes())
