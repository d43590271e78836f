"""Products of quantised tensors in integers.

A contraction whose activations are dequantised bytes (per tensor) and whose weights are dequantised constants
(per tensor or per output channel), or one of bytes widened to int32, becomes a product of bytes into int32:

    sum (x - zx) (w - zw) = sum x v + d sum (x - zx) - zx sum v,   w - zw = v + d

with v in a signed byte, or where each channel is convolved by itself in the type in which the processor
multiplies single bytes fastest. d is 0 unless weights without sign reach beyond one; sum v is known. Scales
follow behind the sum. Whatever else reads a dequantised constant gets it folded, in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.rebuild import rebuild
from host.lowering.types import dot_product, numeric_type, single_products
from targets import HardwareModel

# Of two bytes, and the largest whole number below which fp32 has all.
_LARGEST_PRODUCT, _LARGEST_EXACT = 1 << 15, 1 << 24
# Dot products of four bytes; those of two numbers of 16 bits take about as long as multiply-adds of floats.
_OF_BYTES = ("u8s8", "s8s8")
# Below all numbers that count beside others.
_NOTHING = 1e-30


@dataclass(frozen=True, eq=False)
class _Activations:
    """Bytes: `data` - `zero`, times `scale` where they represent real numbers.

    Attributes:
        data: the bytes.
        zero: of int32, for all of them.
        scale: one number, or one for each row, [..., 1].
    """

    data: Value
    zero: Value
    scale: Value | None


@dataclass(frozen=True, eq=False)
class _Weights:
    """Integers without zero point, and a scale for each output channel (None for integers as such)."""

    data: np.ndarray
    scale: np.ndarray | None


def is_quantized_constant(value: Value) -> bool:
    """Whether a value is a dequantised constant, perhaps transposed or reshaped.

    Such values are not folded while the model is read: weights keep their integers.
    """
    node = value.producer
    if node is None:
        return False
    if node.op in ("transpose", "reshape"):
        return is_quantized_constant(node.inputs[0])
    return node.op == "dequantize" and all(part.is_constant for part in node.inputs)


def _has_products(dtype: str) -> bool:
    """Whether products of such elements are computed in integers."""
    return numeric_type(dtype).integer_products


def use_integers(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph whose quantised contractions are computed in integers.

    Args:
        graph: as read.
        hardware: the processor.
    """
    is_fast = hardware.dot_product in _OF_BYTES or hardware.gpu is not None

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op == "dequantize" and not is_fast:
            exact = _rounded_by_row(inputs)
            if exact is not None:
                return exact
        if node.op in ("conv", "dense"):
            result = _in_integers(builder, node, inputs, hardware)
            if result is not None:
                return result
        if node.op in ("dequantize", "transpose", "reshape"):
            # Perhaps on the way to a contraction; folded where something else reads the result.
            return builder.copy(node, inputs)
        return builder.copy(node, [_folded(value) for value in inputs])

    return rebuild(graph, rule)


def _rounded_by_row(inputs: tuple[Value, ...]) -> Value | None:
    """Real numbers that are rounded to bytes between, by the largest of their rows; None for any others.

    Importers write that where the original runtime does so for the sake of speed. Every step of it is looked
    at: other scales than those of the rows make other numbers, and belong to the model.
    """
    data, scale, zero = inputs
    node, back = data.producer, _made_by(scale, "multiply")
    if node is None or node.op != "quantize" or node.output.dtype != "int8" or back is None:
        return None
    steps = (node.inputs[1].scalar(), node.inputs[2].scalar(), back.inputs[1].scalar())
    if zero.data is None or zero.data.any() or steps != (1.0, 0.0, float(np.float32(1 / 127))):
        return None
    scaled = _made_by(node.inputs[0], "multiply")
    factor = None if scaled is None else _made_by(scaled.inputs[1], "divide")
    if scaled is None or factor is None or factor.inputs[0].scalar() != 127.0:
        return None
    exact, largest = scaled.inputs[0], back.inputs[0]
    return exact if factor.inputs[1] is largest and _is_largest_of_rows(largest, exact) else None


def _is_largest_of_rows(largest: Value, matrix: Value) -> bool:
    """Whether each number is the largest size in its row of a matrix, or next to nothing where all are 0."""
    bounded = _made_by(largest, "maximum")
    least = None if bounded is None else bounded.inputs[1].scalar()
    if bounded is None or least is None or not 0.0 < least < _NOTHING:
        return False
    found = _made_by(bounded.inputs[0], "max")
    sizes = None if found is None else _made_by(found.inputs[0], "abs")
    if found is None or sizes is None or sizes.inputs[0] is not matrix:
        return False
    return len(matrix.shape) == 2 and tuple(found.attrs["axes"]) == (1,)


def _made_by(value: Value, operation: str) -> Node | None:
    """The node of an operation that makes a value, perhaps under another shape."""
    node = value.producer
    while node is not None and node.op == "reshape":
        node = node.inputs[0].producer
    return node if node is not None and node.op == operation else None


def _in_integers(
    builder: Builder, node: Node, inputs: tuple[Value, ...], hardware: HardwareModel
) -> Value | None:
    x, w = _activations(builder, inputs[0]), _weights(inputs[1])
    if x is None or w is None or (x.scale is None) != (w.scale is None):
        return None
    if node.op != "dense" and x.scale is not None and x.scale.size > 1:
        return None
    total = _product(builder, node, x, w.data, hardware)
    if total is None or x.scale is None or w.scale is None:
        return total
    scale = builder.binary("multiply", x.scale, constant(w.scale))
    return builder.binary("multiply", builder.cast(total, "float32"), scale)


def _activations(builder: Builder, value: Value) -> _Activations | None:
    """The bytes behind an operand, without the views and conversions between."""
    node = value.producer
    if node is None:
        return None
    if node.op in ("transpose", "reshape"):
        inner = _activations(builder, node.inputs[0])
        if inner is None:
            return None
        if node.op == "transpose":
            moved = builder.transpose(inner.data, node.attrs["axes"])
        else:
            moved = builder.reshape(inner.data, value.shape)
        scale = inner.scale
        if scale is not None and scale.size > 1:
            if node.op == "transpose" or value.shape[-1] != inner.data.shape[-1]:
                return None
            scale = builder.reshape(scale, (*value.shape[:-1], 1))
        return _Activations(moved, inner.zero, scale)
    if node.op == "dequantize":
        data, scale, zero = node.inputs
        if not _has_products(data.dtype):
            return None
        if scale.size > 1 and scale.shape == (*data.shape[:-1], 1) and zero.data is not None:
            return None if zero.data.any() else _Activations(data, constant(0, "int32"), scale)
        usable = scale.size == zero.size == 1
        return _Activations(data, _scalar(builder, zero), _scalar(builder, scale)) if usable else None
    zero = constant(0, "int32")
    if node.op == "subtract" and value.dtype == "int32" and node.inputs[1].size == 1:
        zero = _scalar(builder, node.inputs[1])
        node = node.inputs[0].producer
    if node is None or node.op != "cast" or node.output.dtype != "int32":
        return None
    data = node.inputs[0]
    return _Activations(data, zero, None) if _has_products(data.dtype) and data.shape == value.shape else None


def _scalar(builder: Builder, value: Value) -> Value:
    wide = value if value.is_float else builder.cast(value, "int32")
    return builder.reshape(wide, ())


def _weights(value: Value) -> _Weights | None:
    if value.data is not None:
        return _Weights(value.data, None) if value.dtype == "int32" else None
    parts = _parts(value)
    if parts is None:
        return None
    data, scale, zero = parts
    rows = np.broadcast_to(scale, data.shape).reshape(-1, data.shape[-1])
    if not _has_products(data.dtype.name) or not (rows == rows[:1]).all():
        return None
    return _Weights(data.astype(np.int32) - zero, np.ascontiguousarray(rows[0]))


def _parts(value: Value) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Integers of a dequantised constant, with scales and zero points (int32) of the same shape."""
    if not is_quantized_constant(value) or value.producer is None:
        return None
    node = value.producer
    if node.op == "dequantize":
        data, scale, zero = (part.data for part in node.inputs)
        assert data is not None and scale is not None and zero is not None
        return data, np.broadcast_to(scale, data.shape), np.broadcast_to(zero.astype(np.int32), data.shape)
    inner = _parts(node.inputs[0])
    assert inner is not None
    if node.op == "transpose":
        axes = node.attrs["axes"]
        return inner[0].transpose(axes), inner[1].transpose(axes), inner[2].transpose(axes)
    return inner[0].reshape(value.shape), inner[1].reshape(value.shape), inner[2].reshape(value.shape)


def _folded(value: Value) -> Value:
    """A dequantised constant as numbers."""
    parts = _parts(value)
    if parts is None:
        return value
    data, scale, zero = parts
    return constant((data.astype(np.int32) - zero).astype(np.float32) * scale)


def _product(
    builder: Builder, node: Node, x: _Activations, weights: np.ndarray, hardware: HardwareModel
) -> Value | None:
    """The sum in int32, or None where it has no such form."""
    channels = weights.shape[-1]
    columns = weights.reshape(-1, channels)
    low, high = columns.min(axis=0), columns.max(axis=0)
    shift = np.where(high > 127, high - 127, np.where(low < -128, low + 128, 0)).astype(np.int32)
    if (high - low > 255).any():
        return None
    fitting = (weights - shift).astype(np.int8)
    if node.op == "conv":
        if shift.any():
            return None
        total = _convolution(builder, node, x, fitting, hardware)
    else:
        total = _dense(builder, node, x.data, fitting)
    if total is None:
        return None
    sums = fitting.reshape(-1, channels).sum(axis=0, dtype=np.int32)
    total = _without(builder, total, builder.binary("multiply", x.zero, constant(sums)))
    if not shift.any():
        return total
    rows, last = builder.cast(x.data, "int32"), len(x.data.shape) - 1
    length = x.data.shape[last]
    summed = (*rows.shape[:last], 1)
    sums_x = builder.one("sum", [rows], summed, "int32", axes=(last,), keepdims=True)
    offset = builder.binary("multiply", x.zero, constant(length, "int32"))
    moved = builder.binary("multiply", builder.binary("subtract", sums_x, offset), constant(shift))
    return builder.binary("add", total, moved)


def _without(builder: Builder, total: Value, term: Value) -> Value:
    if term.data is None:
        return builder.binary("subtract", total, term)
    return builder.binary("add", total, constant(-term.data)) if term.data.any() else total


def _dense(builder: Builder, node: Node, data: Value, weights: np.ndarray) -> Value:
    matrix = builder.reshape(data, (-1, data.shape[-1]))
    shape = (matrix.shape[0], weights.shape[1])
    result = builder.one(
        "integer_dense", [matrix, constant(weights)], shape, numeric_type(data.dtype).accumulate
    )
    return builder.reshape(result, node.output.shape)


def _convolution(
    builder: Builder, node: Node, x: _Activations, weights: np.ndarray, hardware: HardwareModel
) -> Value | None:
    """A convolution whose padding is the zero point; one that reads single positions is a dense product."""
    attrs, *kernel = node.attrs, *weights.shape[:-2]
    groups, depth = attrs["groups"], weights.shape[-2]
    plain = not any(attrs["padding"]) and all(step == 1 for step in attrs["strides"])
    if plain and prod(kernel) == groups == 1:
        return _dense(builder, node, x.data, weights.reshape(weights.shape[-2:]))
    fill = x.zero.scalar()
    if fill is None and any(attrs["padding"]):
        return None
    op = "integer_conv"
    if groups > 1:
        if depth == 1 and groups == x.data.shape[-1]:
            return _depthwise(builder, node, x.data, weights, int(fill or 0), hardware)
        if not _has_whole_groups(depth, weights.shape[-1] // groups, hardware):
            return None
        op = "integer_grouped_conv"
    specs = [(node.output.shape, numeric_type(x.data.dtype).accumulate)]
    attrs = {**attrs, "fill": int(fill or 0)}
    return builder.emit(op, [x.data, constant(weights)], attrs, specs)[0]


# Lanes of the narrowest vectors.
_NARROWEST = 4


def _has_whole_groups(depth: int, channels: int, hardware: HardwareModel) -> bool:
    """Whether dot products divide the groups of a convolution.

    If not, channels would have to be filled up in every group, those of the activations too.

    Args:
        depth: input channels of a group.
        channels: output channels of a group.
        hardware: with or without an instruction for dot products.
    """
    if not hardware.dot_product:
        return True
    return depth % dot_product(hardware.dot_product).group == 0 and channels % _NARROWEST == 0


def _depthwise(
    builder: Builder, node: Node, data: Value, weights: np.ndarray, fill: int, hardware: HardwareModel
) -> Value | None:
    """A convolution of each channel by itself: each product has a lane to itself.

    Single precision adds bytes exactly as long as no sum can be beyond 2^24: with 512 taps at most.
    """
    *kernel, _, channels = weights.shape
    # A GPU has dot products of bytes, four taps at a time.
    single = single_products(hardware.dot_product) if hardware.gpu is None else "int8"
    if single == "float32" and prod(kernel) * _LARGEST_PRODUCT > _LARGEST_EXACT:
        return None
    weight = constant(weights.reshape(*kernel, channels).astype(single))
    specs = [(node.output.shape, numeric_type(data.dtype).accumulate)]
    return builder.emit("depthwise_conv", [data, weight], {**node.attrs, "fill": fill}, specs)[0]
