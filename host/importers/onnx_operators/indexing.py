"""Operators that pick elements by number."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from host.importers.onnx_operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    constant_value,
    dtype_of,
    scalar,
    shape_of,
)


def wrap_negative(context: Context, indices: Any, size: int) -> Any:
    """Indices with the negative ones, which count from the end, made positive."""
    values = constant_value(indices)
    if values is not None:
        return constant(np.where(values < 0, values + size, values).astype(values.dtype))
    dtype = dtype_of(indices)
    if dtype.startswith("uint"):
        return indices
    zero, extent = scalar(0, dtype), scalar(size, dtype)
    shifted = context.emit(relax.op.add(indices, extent))
    return context.emit(relax.op.where(relax.op.less(indices, zero), shifted, indices))


def _gather(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    data, indices = inputs[0], inputs[1]
    shape = shape_of(context, data)
    axis = attributes.get("axis", 0) % len(shape)
    indices = wrap_negative(context, indices, shape[axis])
    # "clip" keeps an index out of range, which only a wrong input has, from reading foreign memory.
    return relax.op.take(data, indices, axis, mode="clip")


CONVERTERS: dict[str, Converter] = {"Gather": _gather}
