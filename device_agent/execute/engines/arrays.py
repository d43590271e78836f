"""NumPy arrays from what travels, and back; for the engines that speak NumPy anyway."""

from __future__ import annotations

from typing import Any

import numpy

from device_agent.errors import AgentError
from device_agent.wire.frames import ITEM_BYTES, TensorData


def to_array(tensor: TensorData) -> Any:
    """A writable array of its own memory.

    Raises:
        AgentError: NumPy has no such element type.
    """
    try:
        # Engines do not know the types that another library has added, either.
        known = numpy.dtype(tensor.dtype).isbuiltin == 1
    except TypeError:
        known = False
    if not known:
        raise AgentError("engine", "this engine takes no inputs of type %s" % tensor.dtype)
    return numpy.frombuffer(bytearray(tensor.data), dtype=tensor.dtype).reshape(tensor.shape)


def from_array(array: Any) -> TensorData:
    """What travels of an array; keeps the shape of scalars.

    Raises:
        AgentError: its elements are no numbers (text, sequences, maps).
    """
    # ascontiguousarray makes one dimension out of none.
    contiguous = numpy.asarray(array, order="C")
    if str(contiguous.dtype) not in ITEM_BYTES:
        raise AgentError("engine", "an output of type %s cannot be sent" % contiguous.dtype)
    return TensorData(tuple(contiguous.shape), str(contiguous.dtype), contiguous.tobytes())
