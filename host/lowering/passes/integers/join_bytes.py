"""Sums and products of two quantised tensors, quantised again, are computed on bytes.

    quantize(dequantize(a) + dequantize(b))  = round(a * sa/sc + b * sb/sc + c), saturated
    quantize(dequantize(a) * dequantize(b))  = round((a - za) (b - zb) * (sa sb / sc) + zc), saturated
    quantize(dequantize(a) @ dequantize(b))  = round((a - za) @ (b - zb) * (sa sb / sc)) + zc, saturated

with c = zc - za sa/sc - zb sb/sc. The written form rounds after every step. These forms round as QLinearAdd,
QLinearMul and QLinearMatMul of ONNX Runtime do where the processor fuses multiplications and additions: a
value between two steps falls to the same side, and no later layer enlarges a difference. A relu or
clip before the quantisation goes where the saturation does the same. Bytes with sign are moved by 128 to
those without, zero points with them. Matrix products stay in fp32, which adds up 258 products of bytes, and
more of those that occur, without rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant, read_once
from host.lowering.passes.integers.fold_scales import saturates
from host.lowering.rebuild import rebuild

_BYTES = ("int8", "uint8")
_ANCHORS = ("add", "multiply", "matmul")
# What is added to a byte with sign.
SIGN = 128


@dataclass(frozen=True, eq=False)
class _Quantised:
    """Bytes that represent (data - zero) * scale, the data without sign; `point` is the zero as given."""

    data: Value
    point: Value
    scale: np.float32
    zero: int


def join_bytes(graph: Graph) -> Graph:
    """An equal graph in which bytes are added and multiplied as such."""
    private = read_once(graph)

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        result = None
        if node.op == "quantize" and node.output.dtype in _BYTES:
            result = _joined(builder, node, inputs, _anchor(node, private))
        return builder.copy(node, inputs) if result is None else result

    return rebuild(graph, rule)


def _anchor(node: Node, private: Callable[[Value], bool]) -> tuple[Node, list[Node]] | None:
    """The sum or product that is quantised, and what limits it between; each is read by nothing else."""
    between: list[Node] = []
    value = node.inputs[0]
    while private(value) and value.producer is not None:
        if value.producer.op in _ANCHORS:
            return value.producer, between
        if value.producer.op not in ("relu", "clip"):
            return None
        between.append(value.producer)
        value = value.producer.inputs[0]
    return None


def _joined(
    builder: Builder, node: Node, inputs: tuple[Value, ...], found: tuple[Node, list[Node]] | None
) -> Value | None:
    if found is None:
        return None
    anchor, between = found
    made = _parameters(inputs[1], inputs[2], node.output.dtype)
    # The walk has rebuilt the operands already, behind the operations between.
    value = inputs[0]
    for _ in between:
        assert value.producer is not None
        value = value.producer.inputs[0]
    if made is None or value.producer is None or value.producer.op != anchor.op:
        return None
    operands = [_quantised(operand) for operand in value.producer.inputs]
    first, second = operands
    if first is None or second is None:
        return None
    scale, zero = made
    for inner in between:
        bounds = inner.attrs if inner.op == "clip" else {"low": 0.0, "high": float("inf")}
        low, high, step = float(bounds["low"]), float(bounds["high"]), float(scale)
        if not saturates(inputs[2], low / step, high / step, node.output.dtype):
            return None
    if anchor.op == "matmul":
        return _matrix_product(builder, node, value.producer, first, second, scale, inputs[2])
    if {first.data.dtype, second.data.dtype} != {node.output.dtype}:
        return None
    write = _sum if anchor.op == "add" else _product
    return write(builder, node, first, second, scale, zero)


def _quantised(value: Value) -> _Quantised | None:
    node = value.producer
    if node is None or node.op != "dequantize" or node.inputs[0].dtype not in _BYTES:
        return None
    found = _parameters(node.inputs[1], node.inputs[2], node.inputs[0].dtype)
    return None if found is None else _Quantised(node.inputs[0], node.inputs[2], *found)


def _parameters(scale: Value, zero: Value, dtype: str) -> tuple[np.float32, int] | None:
    """Scale of a whole tensor and its zero point among bytes without sign, known beforehand."""
    step, point = scale.scalar(), zero.scalar()
    if step is None or point is None or scale.dtype != "float32" or not np.float32(step) > 0.0:
        return None
    return np.float32(step), int(point) + (SIGN if dtype == "int8" else 0)


def _sum(
    builder: Builder, node: Node, first: _Quantised, second: _Quantised, scale: np.float32, zero: int
) -> Value | None:
    ratios = [one.scale / scale for one in (first, second)]
    # In the order and with the fused operation of the runtime: exact in double precision, rounded once.
    last = np.float32(ratios[1] * np.float32(second.zero))
    moved = np.float32(np.float64(ratios[0]) * first.zero + np.float64(last))
    offset = np.float32(np.float32(zero) - moved)
    if not np.isfinite([*ratios, offset]).all():
        return None
    numbers = [constant(float(number), "float32") for number in (*ratios, offset)]
    return builder.one("add_bytes", [first.data, second.data, *numbers], node.output.shape, node.output.dtype)


def _product(
    builder: Builder, node: Node, first: _Quantised, second: _Quantised, scale: np.float32, zero: int
) -> Value | None:
    ratio = np.float32(np.float32(first.scale * second.scale) / scale)
    if not np.isfinite(ratio):
        return None
    points = [constant(point, "int32") for point in (first.zero, second.zero)]
    numbers = [constant(float(ratio), "float32"), constant(float(zero), "float32")]
    return builder.one(
        "multiply_bytes", [first.data, second.data, *points, *numbers], node.output.shape, node.output.dtype
    )


def _matrix_product(
    builder: Builder,
    node: Node,
    product: Node,
    first: _Quantised,
    second: _Quantised,
    scale: np.float32,
    zero: Value,
) -> Value | None:
    """The product of whole numbers, and one multiplication for all scales."""
    ratio = np.float32(np.float32(first.scale * second.scale) / scale)
    if not np.isfinite(ratio):
        return None
    one = constant(1.0, "float32")
    whole = [
        builder.one("dequantize", [operand.data, one, operand.point], operand.data.shape, "float32")
        for operand in (first, second)
    ]
    (total,) = builder.copy(product, whole)
    scaled = builder.binary("multiply", total, constant(float(ratio), "float32"))
    return builder.one("quantize", [scaled, one, zero], node.output.shape, node.output.dtype)
