"""Brings products of bytes into the form of the processor's dot product.

Weights are packed [N / L, K / G, L, G], G products going to one lane: what one instruction reads is one
vector. An instruction of bytes wants activations of one sign. Those of the other are moved by 128:
sum (x + 128) w = sum x w + 128 sum w, so a constant puts it right. One of 16 bits takes either, widened.
Without such an instruction the weights are packed like any others, and the bytes are widened to 32 bits.

Tensor cores of GPUs take activations of either sign. Up to 16 weights of one column lie together, which is
what a thread copies at once; the depth is filled up where not even four divide it.
"""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from host.lowering.passes.integers.rows_of_taps import OPERATION, in_rows
from host.lowering.passes.pack_weights import blocks, blocks_of_groups, lanes_for
from host.lowering.rebuild import rebuild
from host.lowering.types import DotProduct, dot_product
from targets import HardwareModel

_GROUPED, _DEPTHWISE = "integer_grouped_conv", OPERATION
# Bytes of one column that lie together in weights for tensor cores: as many as divide the depth.
_MATRIX_GROUPS = (16, 8, 4)
_PRODUCTS = ("integer_dense", "integer_conv", _GROUPED, _DEPTHWISE)


def arrange_dots(graph: Graph, hardware: HardwareModel) -> Graph:
    """A graph whose integer products have packed weights.

    Args:
        graph: with the products of `_PRODUCTS`.
        hardware: whose vectors and dot product they are packed for.
    """
    if hardware.gpu is not None and hardware.gpu.matrix_int8_per_cycle:
        return rebuild(graph, lambda b, node, inputs: _matrices(b, node, inputs, hardware))
    if not hardware.dot_product:
        return rebuild(graph, lambda b, node, inputs: _widened(b, node, inputs, hardware))
    dot = dot_product(hardware.dot_product)
    dtype = dot.activations
    read = {value for node in graph.nodes if node.op in _PRODUCTS for value in _shapes_of(node.inputs[0])}
    # By the value of the old graph, which had another type.
    moved: dict[Value, Value] = {}

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        old = node.inputs[0] if node.inputs else None
        if node.op in _PRODUCTS:
            assert old is not None
            if old.dtype != dtype and old not in moved:
                moved[old] = _retyped(builder, inputs[0], dtype)
            return _dots(builder, node, moved.get(old, inputs[0]), hardware, dot)
        if node.op == "quantize" and node.output in read and _step(node.output.dtype, dtype):
            zero = inputs[2].data
            if zero is not None:
                # Quantised to the other sign in the first place.
                other = constant(zero.astype(np.int32) + _step(node.output.dtype, dtype), dtype)
                parts = [*inputs[:2], other]
                moved[node.output] = builder.one("quantize", parts, node.output.shape, dtype)
                return _retyped(builder, moved[node.output], node.output.dtype)
        if node.op == "reshape" and old is not None and old in moved:
            moved[node.output] = builder.reshape(moved[old], node.output.shape)
        if node.op == "dequantize" and old is not None and old in moved and inputs[2].data is not None:
            other = constant(inputs[2].data.astype(np.int32) + _step(old.dtype, dtype))
            parts = [moved[old], inputs[1], other]
            return builder.one("dequantize", parts, node.output.shape, node.output.dtype)
        return builder.copy(node, inputs)

    return rebuild(graph, rule)


def _shapes_of(value: Value) -> list[Value]:
    """A value, and those of which it is another shape."""
    found = [value]
    while value.producer is not None and value.producer.op == "reshape":
        value = value.producer.inputs[0]
        found.append(value)
    return found


def _step(old: str, new: str) -> int:
    """By how much numbers grow that are bytes of type `old` where they become `new`."""
    return {("int8", "uint8"): 128, ("uint8", "int8"): -128}.get((old, new), 0)


def _retyped(builder: Builder, value: Value, dtype: str) -> Value:
    """Bytes as numbers of another type: moved by 128 where that is the other sign's."""
    found = builder.cast(value, dtype)
    if not _step(value.dtype, dtype):
        return found
    return builder.binary("bitwise_xor", found, constant(-128 if dtype == "int8" else 128, dtype))


def _widened(
    builder: Builder, node: Node, inputs: tuple[Value, ...], hardware: HardwareModel
) -> Value | tuple[Value, ...]:
    data = inputs[1].data if node.op in _PRODUCTS else None
    if data is None:
        return builder.copy(node, inputs)
    op = "grouped_conv" if node.op == _GROUPED else node.op.replace("integer", "packed")
    weight = constant(_in_blocks(node, data, hardware))
    return builder.emit(op, [inputs[0], weight], node.attrs, [(node.output.shape, node.output.dtype)])


def _matrices(
    builder: Builder, node: Node, inputs: tuple[Value, ...], hardware: HardwareModel
) -> Value | tuple[Value, ...]:
    """A product of bytes for tensor cores."""
    data = inputs[1].data if node.op in _PRODUCTS else None
    if data is None or inputs[0].dtype not in ("int8", "uint8"):
        return _widened(builder, node, inputs, hardware)
    group = next((size for size in _MATRIX_GROUPS if data.shape[-2] % size == 0), 0)
    if not group and node.op == _GROUPED:
        # Channels would have to be filled up in every group.
        return _widened(builder, node, inputs, hardware)
    group = group or _MATRIX_GROUPS[-1]
    return _dots(builder, node, inputs[0], hardware, DotProduct(inputs[0].dtype, group))


def _dots(builder: Builder, node: Node, value: Value, hardware: HardwareModel, dot: DotProduct) -> Value:
    data = node.inputs[1].data
    assert data is not None
    attrs, correction = dict(node.attrs), None
    step = _step(node.inputs[0].dtype, value.dtype)
    if step:
        correction = -step * data.reshape(-1, data.shape[-1]).sum(axis=0, dtype=np.int32)
        attrs = {name: entry + step if name == "fill" else entry for name, entry in attrs.items()}
    missing = -data.shape[-2] % dot.group if node.op != _DEPTHWISE else 0
    if missing:
        rank = len(value.shape)
        value = builder.pad(value, (0,) * rank, (*(0,) * (rank - 1), missing), 0)
        data = np.pad(data, [(0, 0)] * (data.ndim - 2) + [(0, missing), (0, 0)])
    if node.op == _DEPTHWISE:
        weight, attrs = constant(in_rows(node, data, hardware)), {**attrs, "down": data.shape[0]}
    else:
        weight = constant(grouped(_in_blocks(node, data, hardware), dot.group))
    op = node.op.replace("integer", "dot")
    result = builder.emit(op, [value, weight], attrs, [(node.output.shape, node.output.dtype)])[0]
    return result if correction is None else builder.binary("add", result, constant(correction))


def _in_blocks(node: Node, data: np.ndarray, hardware: HardwareModel) -> np.ndarray:
    """Weights [*K, C, N] as [N / L, *K, C, L], those of a grouped convolution as [G, N / G / L, *K, C, L]."""
    if node.op != _GROUPED:
        return blocks(data, lanes_for(data.shape[-1], hardware.lanes, hardware.halves_vectors))
    groups = node.attrs["groups"]
    return blocks_of_groups(data, groups, lanes_of_group(data.shape[-1] // groups, hardware.lanes))


def lanes_of_group(channels: int, lanes: int) -> int:
    """Lanes of a vector that divide the output channels of a group, 1 where no more do.

    Nothing is cut off behind a sum, so that what follows it stays in its tile.
    """
    while channels % lanes:
        lanes //= 2
    return lanes


def grouped(packed: np.ndarray, group: int) -> np.ndarray:
    """[..., C, L] as [..., C / group, L, group]."""
    *outer, channels, lanes = packed.shape
    grouped = packed.reshape(*outer, channels // group, group, lanes)
    return np.ascontiguousarray(np.swapaxes(grouped, -1, -2))
