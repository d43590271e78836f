"""Draws random operators, of the kinds and sizes that networks have, as graphs for the lowering."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod

from host.lowering.builder import Builder
from host.lowering.graph import Graph, Node, Value, constant
from research.pretraining.kinds import half_operators as half
from research.pretraining.kinds import quantised_operators as quantised
from research.pretraining.kinds import recurrent_operators as recurrent
from research.pretraining.kinds import streaming_operators as streaming
from research.pretraining.operator_sampler import CLASSES, HEADS, Draw

# Bounds on a drawn operator: elements of one tensor, and multiply-adds of the operator.
_MAX_ELEMENTS, _MAX_WORK = 1 << 23, 1 << 31
_KERNELS = ((1, 1),) * 8 + ((3, 3),) * 8 + ((5, 5), (7, 7), (1, 7), (7, 1), (1, 3), (3, 1), (2, 2), (9, 9))
_DEPTHWISE_KERNELS = ((3, 3),) * 6 + ((5, 5),) * 3 + ((7, 7),) * 2 + ((1, 7), (9, 9))
_CONTRACTIONS = ("conv", "conv_transpose", "dense", "matmul")


def _convolve(draw: Draw, groups: int, channels_in: int, channels_out: int, kernel: tuple[int, int]) -> Value:
    """A convolution of an image. It is nearly always padded so that only the stride reduces the size."""
    batch, height = draw.batch(), draw.image()
    width = height if draw.chance(0.85) else draw.image()
    stride = draw.random.choice((1, 1, 1, 2))
    dilation = draw.random.choice((2, 2, 4, 6)) if max(kernel) == 3 and draw.chance(0.08) else 1
    kept = draw.chance(0.92)
    reach = [(size - 1) * dilation for size in kernel]
    before = [length // 2 if kept else 0 for length in reach]
    after = [length - length // 2 if kept else 0 for length in reach]
    if kept and stride == 2 and draw.chance(0.4):
        # The "same" padding of frameworks: an even size has its additional padding only at the end.
        before, after = [max(0, b - 1) for b in before], after
    sizes = [max(size, length + 1) for size, length in zip((height, width), reach, strict=True)]
    outs = [
        (size + b + a - length - 1) // stride + 1
        for size, b, a, length in zip(sizes, before, after, reach, strict=True)
    ]
    return draw.builder.one(
        "conv",
        [
            _image(draw, batch, sizes[0], sizes[1], channels_in),
            _kernel(draw, kernel, channels_in // groups, channels_out),
        ],
        (batch, *outs, channels_out),
        "float32",
        strides=(stride, stride),
        padding=(*before, *after),
        dilation=(dilation, dilation),
        groups=groups,
    )


def _kernel(draw: Draw, kernel: tuple[int, ...], inputs: int, outputs: int) -> Value:
    return draw.weight(*kernel, inputs, outputs)


def _image(draw: Draw, batch: int, height: int, width: int, channels: int) -> Value:
    """An image. With few channels, as at the input of a network, it is often stored channels first."""
    if channels <= 4 and draw.chance(0.7):
        return draw.builder.transpose(draw.input(batch, channels, height, width), (0, 2, 3, 1))
    return draw.input(batch, height, width, channels)


def _convolution(draw: Draw) -> Value:
    kernel = draw.random.choice(_KERNELS)
    stem = max(kernel) > 1 and draw.chance(0.1)
    channels_in = draw.random.choice((1, 3, 3, 4)) if stem else draw.channels(1024)
    channels_out = draw.random.choice(CLASSES) if draw.chance(0.04) else draw.channels(1024)
    return draw.epilogue(_convolve(draw, 1, channels_in, channels_out, kernel))


def _patches(draw: Draw) -> Value:
    """A convolution of patches that do not overlap, as at the beginning of image transformers."""
    size, batch, count = (
        draw.random.choice((2, 2, 4, 4, 8, 14, 16, 32)),
        draw.batch(),
        draw.random.choice((7, 8, 14, 16, 24, 28, 32, 56)),
    )
    channels_in = 3 if size > 2 else draw.channels(512)
    channels_out = draw.channels(1024)
    data = _image(draw, batch, count * size, count * size, channels_in)
    result = draw.builder.one(
        "conv",
        [data, draw.weight(size, size, channels_in, channels_out)],
        (batch, count, count, channels_out),
        "float32",
        strides=(size, size),
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=1,
    )
    return draw.epilogue(result)


def _line(draw: Draw) -> Value:
    """A convolution along one dimension, as for sound and other signals."""
    batch, length, kernel = (
        draw.batch(),
        draw.random.choice((64, 128, 250, 500, 1000, 1500, 3000, 4096, 16000)),
        draw.random.choice((1, 3, 3, 5, 7, 9, 15)),
    )
    channels_in = draw.random.choice((1, 80)) if draw.chance(0.2) else draw.channels(768)
    channels_out = draw.channels(768)
    groups = 1
    if draw.chance(0.25):
        groups, channels_out = channels_in, channels_in
    stride, pad = draw.random.choice((1, 1, 2)), kernel // 2
    out = (length + 2 * pad - kernel) // stride + 1
    result = draw.builder.one(
        "conv",
        [draw.input(batch, length, channels_in), draw.weight(kernel, channels_in // groups, channels_out)],
        (batch, out, channels_out),
        "float32",
        strides=(stride,),
        padding=(pad, pad),
        dilation=(1,),
        groups=groups,
    )
    return draw.epilogue(result)


def _depthwise(draw: Draw) -> Value:
    channels = draw.channels(1280)
    return draw.epilogue(
        _convolve(draw, channels, channels, channels, draw.random.choice(_DEPTHWISE_KERNELS))
    )


def _grouped(draw: Draw) -> Value:
    groups, inside = (
        draw.random.choice((2, 3, 4, 8, 16, 32, 64)),
        draw.random.choice((2, 4, 8, 10, 12, 16, 24, 32, 58, 64)),
    )
    outside = inside * draw.random.choice((1, 1, 1, 2))
    kernel = draw.random.choice(((3, 3), (3, 3), (3, 3), (1, 1), (5, 5)))
    return draw.epilogue(_convolve(draw, groups, groups * inside, groups * outside, kernel))


def _transposed(draw: Draw) -> Value:
    """A transposed convolution, as in the upsampling layers of segmentation networks and of generators."""
    batch, side = draw.batch(), draw.random.choice((1, 2, 4, 7, 8, 14, 16, 24, 28, 32, 40, 64))
    kernel, stride, pad, more = draw.random.choice(
        (
            (2, 2, 0, 0),
            (4, 2, 1, 0),
            (4, 2, 1, 0),
            (3, 2, 1, 1),
            (5, 2, 2, 1),
            (3, 1, 1, 0),
            (4, 1, 0, 0),
            (4, 4, 0, 0),
        )
    )
    channels_in = draw.channels(1024)
    channels_out = draw.few_channels() if draw.chance(0.15) else draw.channels(512)
    out = (side - 1) * stride - 2 * pad + kernel + more
    result = draw.builder.one(
        "conv_transpose",
        [draw.input(batch, side, side, channels_in), draw.weight(kernel, kernel, channels_in, channels_out)],
        (batch, out, out, channels_out),
        "float32",
        strides=(stride, stride),
        padding=(pad,) * 4,
        dilation=(1, 1),
        groups=1,
        output_padding=(more, more),
    )
    return draw.epilogue(result)


def _dense(draw: Draw) -> Value:
    rows, depth, columns = draw.length() * draw.batch(), draw.channels(4096), draw.channels(4096)
    shape = (rows, depth) if draw.chance(0.5) else (1, rows, depth)
    data, weight = draw.input(*shape), draw.weight(depth, columns)
    return draw.epilogue(draw.builder.one("dense", [data, weight], (*shape[:-1], columns), "float32"))


def _vector(draw: Draw) -> Value:
    depth, columns = draw.channels(8192), draw.channels(8192)
    kind = draw.random.random()
    if kind < 0.2:
        columns = draw.random.choice(CLASSES)
    elif kind < 0.4:
        # Squeeze and excitation: one side has few channels.
        few, many = draw.few_channels(), draw.channels(1536)
        depth, columns = (few, many) if draw.chance(0.5) else (many, few)
    data = draw.input(draw.random.choice((1, 1, 1, 2, 4, 8)), depth)
    weight = draw.weight(depth, columns)
    return draw.epilogue(draw.builder.one("dense", [data, weight], (data.shape[0], columns), "float32"))


def _batched(draw: Draw) -> Value:
    """A product of two activations, as in attention: the scores with their mask, or the weighted values."""
    outer: tuple[int, ...] = (draw.random.choice(HEADS),)
    if draw.chance(0.5):
        outer = (draw.random.choice((1, 1, 1, 2, 4, 8, 16, 64)), *outer)
    rows = draw.length()
    columns = rows if draw.chance(0.6) else draw.length()
    head = draw.random.choice((16, 24, 32, 32, 40, 48, 64, 64, 64, 80, 96, 128))
    scores = draw.chance(0.5)
    depth, wide = (head, columns) if scores else (columns, head)
    left, right = draw.input(*outer, rows, depth), draw.input(*outer, depth, wide)
    result = draw.builder.one("matmul", [left, right], (*outer, rows, wide), "float32")
    if scores and draw.chance(0.6):
        result = draw.builder.binary("multiply", result, constant(head**-0.5, "float32"))
    if scores and draw.chance(0.5):
        mask = (*(1,) * (len(outer) - 1), draw.random.choice((1, outer[-1])), rows, wide)
        result = draw.builder.binary("add", result, draw.input(*mask))
    return result


def _attention(draw: Draw) -> Value:
    """Queries, keys and values of several heads, perhaps with a mask."""
    heads, rows = draw.random.choice(HEADS), max(16, draw.length())
    columns = rows if draw.chance(0.8) else max(16, draw.length())
    head = draw.random.choice((16, 24, 32, 32, 40, 48, 64, 64, 64, 80, 96, 128))
    query, key = draw.input(heads, rows, head), draw.input(heads, columns, head)
    scores = draw.builder.one(
        "matmul", [query, draw.builder.transpose(key, (0, 2, 1))], (heads, rows, columns), "float32"
    )
    scores = draw.builder.binary("multiply", scores, constant(head**-0.5, "float32"))
    if draw.chance(0.4):
        scores = draw.builder.binary("add", scores, draw.input(1, draw.random.choice((1, rows)), columns))
    weights = draw.builder.unary("softmax", scores)
    value = draw.input(heads, columns, head)
    return draw.builder.one("matmul", [weights, value], (heads, rows, head), "float32")


# Kinds with their shares. Most of a network's time is in contractions, but most of its tasks are others.
KINDS: tuple[tuple[Callable[[Draw], Value], float], ...] = (
    (_convolution, 0.11),
    (_dense, 0.09),
    (_depthwise, 0.08),
    (_batched, 0.05),
    (_vector, 0.06),
    (_grouped, 0.05),
    (_transposed, 0.04),
    (_patches, 0.02),
    (_line, 0.02),
    (quantised.convolution, 0.06),
    (quantised.dense, 0.06),
    (quantised.product_of_groups, 0.02),
    (half.dense, 0.02),
    (half.batched, 0.02),
    (half.depthwise, 0.02),
    (half.bfloat16_dense, 0.02),
    (half.bfloat16_convolution, 0.02),
    (streaming.pooling, 0.04),
    (streaming.softmax, 0.03),
    (streaming.layer_norm, 0.03),
    (streaming.mean, 0.02),
    (streaming.reduction, 0.01),
    (streaming.elementwise, 0.02),
    (streaming.transpose, 0.02),
    (streaming.concat, 0.01),
    (streaming.slices, 0.01),
    (streaming.take, 0.005),
    (streaming.gates, 0.005),
    (recurrent.layer, 0.01),
    (_attention, 0.03),
)


def draw_operator(generator: random.Random) -> Graph:
    """Draws a graph of one operator with its epilogue, small enough for an edge device."""
    kinds, shares = zip(*KINDS, strict=True)
    while True:
        draw = Draw(generator)
        output = generator.choices(kinds, shares)[0](draw)
        if within_bounds(draw.builder, output):
            return draw.builder.graph(draw.inputs, output)


def within_bounds(builder: Builder, output: Value) -> bool:
    """Whether the drawn operator is small enough for an edge device."""
    tensors = [output, *(value for node in builder.nodes for value in node.inputs)]
    if max(value.size for value in tensors) > _MAX_ELEMENTS or not output.size:
        return False
    return all(_work(node) <= _MAX_WORK for node in builder.nodes)


def _work(node: Node) -> int:
    """Multiply-adds of a contraction: number of results times length of the sum. 0 for other operators."""
    if node.op not in _CONTRACTIONS:
        return 0
    weight = node.inputs[1].shape
    work = node.output.size * (weight[-2] if node.op == "matmul" else prod(weight[:-1]))
    return work // prod(node.attrs["strides"]) if node.op == "conv_transpose" else work
