"""Draws random operators that read their inputs about once: pooling, normalisation, data movement."""

from __future__ import annotations

from host.lowering.graph import Shape, Value, constant
from research.pretraining.operator_sampler import HEADS, IMAGES, Draw


def pooling(draw: Draw) -> Value:
    """A maximum or mean over windows."""
    kernel = draw.random.choice((2, 2, 3, 3, 5, 9, 13))
    stride, pad = draw.random.choice((1, 2, 2)), kernel // 2 if kernel > 2 else 0
    batch, side, channels = draw.batch(), draw.image(), draw.channels(1024)
    side = max(side, kernel)
    out = (side + 2 * pad - kernel) // stride + 1
    return draw.builder.one(
        "pool",
        [draw.input(batch, side, side, channels)],
        (batch, out, out, channels),
        "float32",
        kind=draw.random.choice(("max", "average")),
        kernel=(kernel, kernel),
        strides=(stride, stride),
        dilation=(1, 1),
        padding=(pad,) * 4,
        count_pad=draw.chance(0.3),
    )


def softmax(draw: Draw) -> Value:
    """A softmax: attention weights, sometimes with their mask, or the end of a classifier."""
    heads, rows = draw.random.choice(HEADS), draw.length()
    length = draw.length(7) if draw.chance(0.7) else max(7, rows)
    value = (
        draw.input(draw.batch(), heads, rows, length) if draw.chance(0.5) else draw.input(heads, rows, length)
    )
    if draw.chance(0.25):
        value = draw.builder.binary("add", value, draw.input(*(1,) * (len(value.shape) - 2), rows, length))
    return draw.builder.unary("softmax" if draw.chance(0.93) else "log_softmax", value)


def layer_norm(draw: Draw) -> Value:
    """Normalises the rows of a sequence, with or without an addition before it."""
    data = draw.sequences()
    width = data.shape[-1]
    if draw.chance(0.4):
        data = draw.builder.binary("add", data, draw.input(*data.shape))
    if draw.chance(0.2):
        norm = draw.builder.unary("rms_norm", data, dims=1, epsilon=1e-5)
        return draw.builder.binary("multiply", norm, draw.weight(width))
    norm = draw.builder.unary("layer_norm", data, dims=1, epsilon=1e-5)
    scaled = draw.builder.binary("multiply", norm, draw.weight(width))
    return draw.builder.binary("add", scaled, draw.weight(width))


def mean(draw: Draw) -> Value:
    """The mean of every channel of an image or of a sequence."""
    if draw.chance(0.2):
        batch, rows, channels = draw.batch(), draw.length(7), draw.channels()
        data = draw.input(batch, rows, channels)
        axes: tuple[int, ...] = (1,)
    else:
        side, channels = draw.random.choice((*IMAGES, 112)), draw.channels()
        data, axes = draw.input(draw.batch(), side, side, channels), (1, 2)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(data.shape))
    return draw.builder.one("mean", [data], shape, "float32", axes=axes, keepdims=True)


def reduction(draw: Draw) -> Value:
    """A sum, a mean or an extremum along the last axis or over the whole tensor."""
    data = draw.sequences()
    rank = len(data.shape)
    axes = (rank - 1,) if draw.chance(0.6) else tuple(range(rank))
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(data.shape))
    kind = draw.random.choice(("sum", "mean", "max", "min"))
    return draw.builder.one(kind, [data], shape, "float32", axes=axes, keepdims=True)


def elementwise(draw: Draw) -> Value:
    """Arithmetic of a tensor with one of the same or a smaller shape, followed by an activation."""
    image = (draw.batch(), draw.image(), draw.image(), draw.channels(1024))
    shape: Shape = image if draw.chance(0.5) else (1, draw.length(), draw.channels())
    other = shape
    kind = draw.random.random()
    if kind < 0.25:
        other = (shape[0], *(1,) * (len(shape) - 2), shape[-1])  # a gate for every channel
    elif kind < 0.35:
        other = (*shape[:-1], 1)
    operation = draw.random.choice(("add", "add", "multiply", "multiply", "subtract", "maximum"))
    value = draw.builder.binary(operation, draw.input(*shape), draw.input(*other))
    if draw.chance(0.15):
        parts = [draw.input(*shape, dtype="bool"), value, constant(-1e9, "float32")]
        return draw.builder.one("where", parts, shape, "float32")
    return draw.epilogue(value)


def transpose(draw: Draw) -> Value:
    """Reorders dimensions: attention heads, windows, channels first."""
    kind = draw.random.random()
    if kind < 0.5:
        orders = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2))
        shape: Shape = (
            draw.batch(),
            draw.length(7),
            draw.random.choice(HEADS[1:]),
            draw.random.choice((32, 64, 80, 96)),
        )
        order: tuple[int, ...] = draw.random.choice(orders)
    elif kind < 0.75:
        window, count = draw.random.choice((4, 7, 8, 12)), draw.random.choice((1, 2, 4, 8))
        shape = (draw.batch(), count, window, count, window, draw.channels(512))
        order = (0, 1, 3, 2, 4, 5)
        if draw.chance(0.5):
            shape = (shape[0], count, count, window, window, shape[-1])
    else:
        shape, order = (draw.batch(), draw.image(), draw.image(), draw.channels(512)), (0, 3, 1, 2)
        if draw.chance(0.5):
            shape, order = (shape[0], shape[3], shape[1], shape[2]), (0, 2, 3, 1)
    result = draw.builder.transpose(draw.input(*shape), order)
    if draw.chance(0.3):
        result = draw.builder.binary("multiply", result, constant(0.125, "float32"))
    return result


def concat(draw: Draw) -> Value:
    """Concatenates tensors along the channels or along a sequence."""
    if draw.chance(0.7):
        batch, side = draw.batch(), draw.image()
        parts = [
            draw.input(batch, side, side, draw.channels(512)) for _ in range(draw.random.choice((2, 2, 3, 4)))
        ]
    else:
        width = draw.channels(1024)
        parts = [draw.input(1, draw.random.choice((1, draw.length())), width) for _ in range(2)]
    axis = len(parts[0].shape) - 1 if len(parts[0].shape) == 4 else 1
    size = sum(part.shape[axis] for part in parts)
    shape = tuple(size if number == axis else extent for number, extent in enumerate(parts[0].shape))
    return draw.builder.one("concat", parts, shape, "float32", axis=axis)


def slices(draw: Draw) -> Value:
    """A part of a tensor (half of the channels, or every second position), followed by an activation."""
    batch, side, channels = draw.batch(), 2 * draw.random.choice(IMAGES), 2 * draw.channels(512)
    data = draw.input(batch, side, side, channels)
    if draw.chance(0.5):
        half = (batch, side, side, channels // 2)
        begin = (0, 0, 0, draw.random.choice((0, channels // 2)))
        return draw.activation(draw.builder.slice(data, begin, half, (1, 1, 1, 1)))
    shape = (batch, side // 2, side // 2, channels)
    begin = (0, draw.random.choice((0, 1)), draw.random.choice((0, 1)), 0)
    return draw.activation(draw.builder.slice(data, begin, shape, (1, 2, 2, 1)))


def take(draw: Draw) -> Value:
    """Looks up rows of a table by number, as for embeddings."""
    rows, width, length = draw.random.choice((512, 1000, 2048, 4096)), draw.channels(1024), draw.length()
    numbers = draw.input(1, length, dtype=draw.random.choice(("int64", "int32")))
    table = draw.weight(rows, width)
    found = draw.builder.one("take", [table, numbers], (1, length, width), "float32", axis=0, mode="fast")
    if draw.chance(0.6):
        found = draw.builder.binary("add", found, draw.input(1, length, width))
    return found


def gates(draw: Draw) -> Value:
    """The cell of a recurrent network, whose gates are slices of one tensor."""
    batch, width = draw.batch(), draw.random.choice((32, 64, 100, 128, 256, 512, 650, 1024))
    data, state = draw.input(batch, 4 * width), draw.input(batch, width)

    def gate(number: int, kind: str) -> Value:
        part = draw.builder.slice(data, (0, number * width), (batch, width), (1, 1))
        return draw.builder.unary(kind, part)

    kept = draw.builder.binary("multiply", gate(1, "sigmoid"), state)
    new = draw.builder.binary("multiply", gate(0, "sigmoid"), gate(2, "tanh"))
    cell = draw.builder.unary("tanh", draw.builder.binary("add", kept, new))
    return draw.builder.binary("multiply", gate(3, "sigmoid"), cell)
