"""Draws random quantised operators, in the form in which importers return them.

The lowering turns products that have an integer form into integer products (rule `dot` where the processor
has the instruction). It computes the others in fp32 between conversions.
"""

from __future__ import annotations

import numpy as np

from host.lowering.graph import Value, constant
from host.lowering.quantised.layout import GROUP
from research.pretraining.operator_sampler import Draw

_ZERO = {"uint8": 128, "int8": 0}
_STEP = 1.0 / 64.0


def _bytes(draw: Draw, *shape: int) -> Value:
    """Dequantised activations: bytes, signed or unsigned."""
    dtype = draw.random.choice(("uint8", "int8"))
    data = draw.input(*shape, dtype=dtype)
    zero = constant(_ZERO[dtype] if draw.chance(0.7) else 3, dtype)
    return draw.builder.one("dequantize", [data, constant(_STEP, "float32"), zero], shape, "float32")


def _dynamic_bytes(draw: Draw, *shape: int) -> Value:
    """Activations that are quantised with a step that the network computes."""
    data = draw.input(*shape, dtype="uint8")
    step, zero = draw.input(), draw.input(dtype="uint8")
    return draw.builder.one("dequantize", [data, step, zero], shape, "float32")


def _weights(draw: Draw, *shape: int) -> tuple[Value, np.ndarray]:
    """Constant weights, dequantised from signed bytes, and their steps: one, or one per output channel."""
    data = np.resize(np.arange(-127, 128, dtype="int8"), shape)
    steps = np.asarray(_STEP, "float32")
    if draw.chance(0.6):
        steps = np.resize(np.linspace(0.01, 0.02, 101, dtype="float32"), shape[-1])
    zero = constant(np.zeros_like(steps, dtype="int8"))
    value = draw.builder.one("dequantize", [constant(data), constant(steps), zero], shape, "float32")
    return value, steps


def _finish(draw: Draw, value: Value, step: np.ndarray, dynamic: bool) -> Value:
    """Adds a bias and an activation, and mostly quantises the result to bytes."""
    if draw.chance(0.85):
        bias = np.resize(np.arange(-50, 51), value.shape[-1]) * step * np.float32(_STEP)
        if dynamic or draw.chance(0.3):
            bias = bias + np.float32(0.001234)
        value = draw.builder.binary("add", value, constant(bias.astype("float32")))
    kind = draw.random.choice(("", "", "relu", "clip", "sigmoid", "gelu", "add"))
    if kind == "clip":
        value = draw.builder.unary("clip", value, low=0.0, high=6.0)
    elif kind == "add":
        value = draw.builder.binary("add", value, draw.input(*value.shape))
    elif kind:
        value = draw.builder.unary(kind, value)
    if dynamic or draw.chance(0.25):
        return value
    dtype = draw.random.choice(("uint8", "int8"))
    parts = [value, constant(0.05, "float32"), constant(_ZERO[dtype], dtype)]
    return draw.builder.one("quantize", parts, value.shape, dtype)


def convolution(draw: Draw) -> Value:
    """A convolution of bytes, sometimes a depthwise one."""
    depthwise = draw.chance(0.15)
    kernel = draw.random.choice((3, 3, 5) if depthwise else (1, 1, 1, 3, 3, 3, 5, 7))
    channels_in = draw.random.choice((1, 3)) if kernel > 3 and not depthwise else draw.channels(512)
    channels_out = channels_in if depthwise else draw.channels(512)
    batch, side, stride, pad = draw.batch(), draw.image(), draw.random.choice((1, 1, 1, 2)), kernel // 2
    side = max(side, kernel)
    out = (side + 2 * pad - kernel) // stride + 1
    data = _bytes(draw, batch, side, side, channels_in)
    weight, step = _weights(draw, kernel, kernel, 1 if depthwise else channels_in, channels_out)
    result = draw.builder.one(
        "conv",
        [data, weight],
        (batch, out, out, channels_out),
        "float32",
        strides=(stride, stride),
        padding=(pad,) * 4,
        dilation=(1, 1),
        groups=channels_in if depthwise else 1,
    )
    return _finish(draw, result, step, dynamic=False)


def dense(draw: Draw) -> Value:
    """A dense product of bytes, whose activations are quantised in advance or while the network runs."""
    dynamic = draw.chance(0.4)
    rows = draw.random.choice((1, 1, 2, 4, 8)) if draw.chance(0.25) else draw.length()
    depth, columns = draw.channels(4096), draw.channels(4096)
    data = (_dynamic_bytes if dynamic else _bytes)(draw, rows, depth)
    weight, step = _weights(draw, depth, columns)
    result = draw.builder.one("dense", [data, weight], (rows, columns), "float32")
    return _finish(draw, result, step, dynamic)


def product_of_groups(draw: Draw) -> Value:
    """A product of a language model: a weight of 4 or 8 bits with a scale for each group."""
    rows, bits = draw.random.choice((1, 1, 1, 4, 16, 64)), draw.random.choice((4, 8))
    depth = GROUP * max(1, draw.channels(4096) // GROUP)
    columns = draw.channels(4096)
    stored = (columns, depth // 2) if bits == 4 else (columns, depth)
    numbers = np.resize(np.arange(251).astype(np.uint8 if bits == 4 else np.int8), stored)
    scales = np.resize(np.linspace(1e-3, 1e-2, 127, dtype=np.float16), (columns, depth // GROUP))
    operands = [draw.input(rows, depth), constant(numbers), constant(scales)]
    return draw.builder.one("quantised_dense", operands, (rows, columns), "float32", bits=bits, group=GROUP)
