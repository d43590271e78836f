"""Elements written into a copy of a tensor: of constants they are a constant, the rest is left to TVM."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant, normalise_axis
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value | None:
    """A constant of constants, such as a table that a model makes piece by piece."""
    data, indices, updates = (call.value(index).data for index in range(3))
    if data is None or indices is None or updates is None or str(call.attrs.reduction) != "update":
        return None
    axis = normalise_axis(int(call.attrs.axis), data.ndim)
    others = [size for other, size in enumerate(data.shape) if other != axis]
    if indices.shape != updates.shape or [*indices.shape[:axis], *indices.shape[axis + 1 :]] != others:
        return None
    size = data.shape[axis]
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        return None
    result = data.copy()
    np.put_along_axis(result, indices, updates, axis)
    return constant(result)


# Read as a constant, or left to TVM: no node has this name.
SPECS: tuple[OpSpec, ...] = (OpSpec("scatter_elements", read={"scatter_elements": _read}),)
