"""Products with weights of 4 or 8 bits, which stay packed: `com.microsoft.MatMulNBits` of ONNX Runtime.

Forms of the operator that the compiler has no product for are expanded before, in
`host.importers.onnx.contributed`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from host.importers.onnx.operators.context import (
    Attributes,
    Context,
    Converter,
    Inputs,
    constant,
    dtype_of,
    get,
    known,
    shape_of,
)
from host.importers.own_operator import emit_own

# Elements that are summed as integers, see `host.lowering.quantised.layout`.
_GROUP = 32
# The zero points of a symmetric weight, as the compiler stores them.
_MIDDLE = {4: 8, 8: 0}


def _product(context: Context, inputs: Inputs, attributes: Attributes) -> Any:
    """Rows by packed weights, in single precision: scales of blocks, and zero points of 4 bits."""
    depth, columns = int(attributes["K"]), int(attributes["N"])
    bits, blocks = int(attributes.get("bits", 4)), depth // int(attributes["block_size"])
    stored = _numbers(context, inputs, 1, "its weight").reshape(columns, depth * bits // 8)
    scales = _numbers(context, inputs, 2, "its scale").reshape(columns, blocks)
    tensors = [stored if bits == 4 else _signed(stored), scales]
    options: dict[str, Any] = {"bits": bits, "group": _GROUP}
    if get(inputs, 3) is not None:
        found = _numbers(context, inputs, 3, "its zero point").reshape(columns, -1)
        zeros = _halves(found)[:, :blocks] if bits == 4 else _signed(found)
        if (zeros != _MIDDLE[bits]).any():
            tensors, options = [*tensors, zeros], {**options, "asymmetry": "zero"}
    *leading, _ = shape_of(context, inputs[0])
    rows = context.emit(relax.op.reshape(inputs[0], (int(np.prod(leading)), depth)))
    single = rows if dtype_of(rows) == "float32" else context.emit(relax.op.astype(rows, "float32"))
    constants = [constant(array) for array in tensors]
    shape = ((int(np.prod(leading)), columns), "float32")
    (made,) = emit_own(context.builder, "quantised_dense", [single, *constants], options, [shape])
    made = context.emit(relax.op.reshape(made, (*leading, columns)))
    made = made if rows is single else context.emit(relax.op.astype(made, dtype_of(inputs[0])))
    bias = get(inputs, 5)
    return made if bias is None else relax.op.add(made, bias)


def _numbers(context: Context, inputs: Inputs, index: int, what: str) -> np.ndarray:
    found = known(context, inputs, index, what)
    if found is None:
        raise context.fail(f"{what} is missing")
    return found


def _signed(numbers: np.ndarray) -> np.ndarray:
    """Bytes without sign as bytes with sign, which the compiler stores: 128 less."""
    return (numbers.astype(np.int16) - 128).astype(np.int8)


def _halves(packed: np.ndarray) -> np.ndarray:
    """Numbers of which two lie in a byte, the first in the low half, as int8."""
    rows = np.stack([packed & 15, packed >> 4], axis=-1)
    return rows.reshape(len(packed), -1).astype(np.int8)


CONVERTERS: dict[str, Converter] = {"com.microsoft.MatMulNBits": _product}
