"""Readers of neural-network operators; those with channels get them last, between two transposes.

The transposes are written out here and cancelled by `layout`.
"""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, broadcast_shape, constant, normalise_axis
from host.lowering.reader.call import OperatorCall, Reader
from host.lowering.reader.quantized import is_quantized_constant

_SPATIAL = "DHW"


def _order(source: str, target: str) -> list[int]:
    """Axes that bring a tensor of layout `source` to layout `target`."""
    return [source.index(letter) for letter in target]


def _channels_last(layout: str) -> str:
    return "N" + "".join(letter for letter in layout if letter in _SPATIAL) + "C"


def _convolution(builder: Builder, call: OperatorCall) -> Value | None:
    attrs, data, weight = call.attrs, call.value(0), call.value(1)
    layout, out_layout = str(attrs.data_layout), str(attrs.out_layout or attrs.data_layout)
    known = weight.is_constant or is_quantized_constant(weight)
    if not known or len(layout) != len(data.shape) or not _plain(layout, out_layout):
        return None
    transposed = "transpose" in call.name
    last = _channels_last(layout)
    kernel = "".join(letter for letter in last if letter in _SPATIAL)
    weight = builder.transpose(weight, _order(str(attrs.kernel_layout), kernel + "IO"))
    extra = {"output_padding": _ints(attrs.output_padding)} if transposed else {}
    out_shape = tuple(call.shape[axis] for axis in _order(out_layout, last))
    result = builder.one(
        "conv_transpose" if transposed else "conv",
        [builder.transpose(data, _order(layout, last)), weight],
        out_shape,
        call.dtype,
        strides=_ints(attrs.strides),
        padding=_ints(attrs.padding),
        dilation=_ints(attrs.dilation),
        groups=int(attrs.groups),
        **extra,
    )
    return builder.transpose(result, _order(last, out_layout))


def _plain(*layouts: str) -> bool:
    return all(set(layout) <= set("NCDHW") for layout in layouts)


def _ints(values: object) -> tuple[int, ...]:
    return tuple(int(value) for value in values)  # type: ignore[attr-defined]


def _pool(kind: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value | None:
        attrs, data = call.attrs, call.value(0)
        layout = str(attrs.layout)
        if not _plain(layout, str(attrs.out_layout)) or str(attrs.out_layout) != layout:
            return None
        last = _channels_last(layout)
        result = builder.one(
            "pool",
            [builder.transpose(data, _order(layout, last))],
            tuple(call.shape[axis] for axis in _order(layout, last)),
            call.dtype,
            kind=kind,
            kernel=_ints(attrs.pool_size),
            strides=_ints(attrs.strides),
            dilation=_ints(attrs.dilation),
            padding=_ints(attrs.padding),
            count_pad=bool(attrs.count_include_pad),
        )
        return builder.transpose(result, _order(last, layout))

    return read


def _adaptive_average(builder: Builder, call: OperatorCall) -> Value | None:
    data, layout = call.value(0), str(call.attrs.layout)
    axes = [layout.index(letter) for letter in layout if letter in _SPATIAL]
    if any(call.shape[axis] != 1 for axis in axes):
        return None
    return builder.one("mean", [data], call.shape, call.dtype, axes=tuple(axes), keepdims=True)


def _along_last(builder: Builder, op: str, value: Value, axis: int) -> Value:
    """An operation over one axis, with that axis last."""
    rank = len(value.shape)
    axis = normalise_axis(axis, rank)
    order = [a for a in range(rank) if a != axis] + [axis]
    result = builder.unary(op, builder.transpose(value, order))
    return builder.transpose(result, np.argsort(order).tolist())


def _softmax(name: str) -> Reader:
    def read(builder: Builder, call: OperatorCall) -> Value:
        return _along_last(builder, name, call.value(0), int(call.attrs.axis))

    return read


def _layer_norm(builder: Builder, call: OperatorCall) -> Value | None:
    data = call.value(0)
    rank = len(data.shape)
    axes = sorted(normalise_axis(int(a), rank) for a in call.attrs.axes)
    if axes != list(range(rank - len(axes), rank)):
        return None
    epsilon = float(call.attrs.epsilon)
    norm = builder.unary("layer_norm", data, dims=len(axes), epsilon=epsilon)
    return builder.binary("add", builder.binary("multiply", norm, call.value(1)), call.value(2))


def _rms_norm(builder: Builder, call: OperatorCall) -> Value | None:
    data = call.value(0)
    rank = len(data.shape)
    axes = sorted(normalise_axis(int(a), rank) for a in call.attrs.axes)
    if axes != list(range(rank - len(axes), rank)):
        return None
    norm = builder.unary("rms_norm", data, dims=len(axes), epsilon=float(call.attrs.epsilon))
    return builder.binary("multiply", norm, call.value(1))


def _group_norm(builder: Builder, call: OperatorCall) -> Value | None:
    """A normalisation of rows: each group of channels is one."""
    data, groups = call.value(0), int(call.attrs.num_groups)
    rank = len(data.shape)
    axes = sorted(normalise_axis(int(a), rank) for a in call.attrs.axes)
    if normalise_axis(int(call.attrs.channel_axis), rank) != 1 or axes != list(range(2, rank)):
        return None
    return _norm_of_groups(builder, call, groups)


def _instance_norm(builder: Builder, call: OperatorCall) -> Value | None:
    """The same with each channel a group of its own."""
    data = call.value(0)
    rank = len(data.shape)
    axes = sorted(normalise_axis(int(a), rank) for a in call.attrs.axes)
    if normalise_axis(int(call.attrs.channel_axis), rank) != 1 or axes != list(range(2, rank)):
        return None
    return _norm_of_groups(builder, call, data.shape[1])


def _norm_of_groups(builder: Builder, call: OperatorCall, groups: int) -> Value:
    data = call.value(0)
    batch, channels = data.shape[:2]
    each, positions = channels // groups, data.size // (batch * channels)
    inner = (each, positions) if each > 1 else (positions,)
    rows = builder.reshape(data, (batch, groups, *inner))
    result = builder.unary("layer_norm", rows, dims=len(inner), epsilon=float(call.attrs.epsilon))
    # Scale and shift in the shape of the rows, so that they stay in the same function.
    factors = (groups, *inner[:-1], 1)
    if bool(call.attrs.scale):
        result = builder.binary("multiply", result, builder.reshape(call.value(1), factors))
    if bool(call.attrs.center):
        result = builder.binary("add", result, builder.reshape(call.value(2), factors))
    return builder.reshape(result, data.shape)


def _batch_norm(builder: Builder, call: OperatorCall) -> tuple[Value, ...] | None:
    """Scale and shift per channel; the running statistics pass through unchanged."""
    if bool(call.attrs.training):
        return None
    data, gamma, beta, mean, variance = (call.value(i) for i in range(5))
    shape = [1] * len(data.shape)
    axis = normalise_axis(int(call.attrs.axis), len(shape))
    shape[axis] = data.shape[axis]
    epsilon = constant(np.asarray(float(call.attrs.epsilon), dtype=variance.dtype))
    scale = builder.unary("rsqrt", builder.binary("add", variance, epsilon))
    if bool(call.attrs.scale):
        scale = builder.binary("multiply", scale, gamma)
    shift = builder.unary("negative", builder.binary("multiply", mean, scale))
    if bool(call.attrs.center):
        shift = builder.binary("add", shift, beta)
    scaled = builder.binary("multiply", data, builder.reshape(scale, shape))
    return builder.binary("add", scaled, builder.reshape(shift, shape)), mean, variance


def _matmul(builder: Builder, call: OperatorCall) -> Value | None:
    left, right = call.value(0), call.value(1)
    if left.dtype != right.dtype or left.dtype != call.dtype or left.size == 0 or right.size == 0:
        return None
    # A vector is a row on the left and a column on the right; the result loses that dimension.
    if len(left.shape) == 1:
        left = builder.reshape(left, (1, left.size))
    if len(right.shape) == 1:
        right = builder.reshape(right, (right.size, 1))
    batch = broadcast_shape(left.shape[:-2], right.shape[:-2])
    shape = (*batch, left.shape[-2], right.shape[-1])
    known = right.is_constant or is_quantized_constant(right)
    op = "dense" if known and len(right.shape) == 2 else "matmul"
    return builder.reshape(builder.one(op, [left, right], shape, call.dtype), call.shape)


READERS: dict[str, Reader] = {
    **{f"nn.conv{n}d": _convolution for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _convolution for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": _pool("max") for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": _pool("average") for n in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{n}d": _adaptive_average for n in (1, 2, 3)},
    "nn.softmax": _softmax("softmax"),
    "nn.log_softmax": _softmax("log_softmax"),
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.batch_norm": _batch_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "matmul": _matmul,
}
