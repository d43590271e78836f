"""Reads attention over a cache from the importer's call, and prepares its function."""

from __future__ import annotations

import json
from dataclasses import replace

from host.errors import LoweringError
from host.lowering.builder import Builder
from host.lowering.decoding.blocked import can_round, can_use_tiles
from host.lowering.decoding.lines import POSITIONS
from host.lowering.decoding.shape import CacheShape, fp32_lanes
from host.lowering.graph import Graph, Node, Value
from host.lowering.reader.call import OperatorCall
from host.lowering.rebuild import rebuild
from targets import HardwareModel

READ, OPERATION = "unplaced_cached_attention", "cached_attention"


def read_cached_attention(builder: Builder, call: OperatorCall) -> Value:
    """The importer's call: query, key, value, position, both caches, and JSON.

    The JSON has "scale", "window" and "cap", and "rounded" where operands may be rounded to bfloat16.
    """
    *tensors, options = call.arguments
    return builder.emit(READ, tensors, json.loads(options.value), call.outputs)[0]


def place_cached_attention(graph: Graph, hardware: HardwareModel) -> Graph:
    """An equal graph whose attention over caches is shaped for a processor.

    Raises:
        LoweringError: the caches are none that the function can use.
    """

    def rule(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...]:
        if node.op != READ:
            return builder.copy(node, inputs)
        shape = replace(_shape_of(node, fp32_lanes(hardware)), on_gpu=hardware.gpu is not None)
        shape = replace(shape, rounded=bool(node.attrs.get("rounded")) and can_round(shape, hardware))
        shape = replace(shape, in_tiles=shape.rounded and can_use_tiles(shape, hardware))
        if shape.on_gpu and shape.scaled:
            raise LoweringError("attention over a cache of bytes has no program for GPUs: leave --cache out")
        return builder.one(OPERATION, inputs, node.output.shape, "float32", extents=shape)

    return rebuild(graph, rule) if any(node.op == READ for node in graph.nodes) else graph


def _shape_of(node: Node, lanes: int) -> CacheShape:
    query, key, value, position, *scales, key_cache, value_cache = (one.shape for one in node.inputs)
    rows, heads, size = query
    key_heads, capacity = value_cache[:2]
    kept = node.inputs[-1]
    window = int(node.attrs["window"])
    shape = CacheShape(
        rows,
        heads,
        key_heads,
        size,
        capacity,
        window,
        float(node.attrs["scale"]),
        lanes,
        kept.dtype,
        float(node.attrs["cap"]),
    )
    fits = (
        key == value == (rows, key_heads, size)
        and position == (1,)
        and key_cache == (key_heads, capacity // POSITIONS, size, POSITIONS)
        and value_cache == (key_heads, capacity, size)
        and capacity % POSITIONS == 0
        and heads % key_heads == 0
        and rows <= capacity
        and kept.dtype == node.inputs[-2].dtype
        and kept.dtype in ("float32", "float16", "int8")
        and scales == ([(key_heads, capacity // POSITIONS, POSITIONS)] * 2 if kept.dtype == "int8" else [])
        and all(one.dtype == "float16" for one in node.inputs[4:-2])
    )
    if not fits:
        raise LoweringError(f"Attention over a cache of {value_cache} does not fit queries of {query}.")
    return shape
