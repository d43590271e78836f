"""Converts tensors to NumPy arrays and back, for the engines whose interface is NumPy."""

from __future__ import annotations

from typing import Any

import numpy

from device_agent.contract.tensors import numpy_type
from device_agent.errors import AgentError
from device_agent.wire.frames import ITEM_BYTES, TensorData


def is_numpy_type(name: str) -> bool:
    """Whether NumPy itself has the element type; most engines know no other."""
    try:
        return numpy.dtype(name).isbuiltin == 1
    except TypeError:
        return False


def to_array(tensor: TensorData) -> Any:
    """A writable array with its own memory.

    Raises:
        AgentError: NumPy has no such element type.
    """
    if not is_numpy_type(tensor.dtype):
        raise AgentError("engine", "this engine takes no inputs of type %s" % tensor.dtype)
    return numpy.frombuffer(bytearray(tensor.data), dtype=tensor.dtype).reshape(tensor.shape)


def to_any_array(tensor: TensorData) -> Any:
    """The same as `to_array`, also for element types that ml_dtypes adds to NumPy.

    Raises:
        AgentError: this device has no ml_dtypes, or no such type.
    """
    try:
        kind = numpy_type(tensor.dtype)
    except (ImportError, TypeError) as error:
        raise AgentError("engine", "outputs of type %s need the package ml_dtypes" % tensor.dtype) from error
    return numpy.frombuffer(bytearray(tensor.data), dtype=kind).reshape(tensor.shape)


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
