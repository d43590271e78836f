"""Normalisations of channels: read as arithmetic with constants, or as layer norms of rows."""

from __future__ import annotations

import numpy as np

from host.lowering.builder import Builder
from host.lowering.graph import Value, constant, normalise_axis
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import OpSpec


def _group_norm(builder: Builder, call: OperatorCall) -> Value | None:
    """A normalisation of rows: each group of channels is one."""
    data, groups = call.value(0), int(call.attrs.num_groups)
    rank = len(data.shape)
    axes = sorted(normalise_axis(int(a), rank) for a in call.attrs.axes)
    if normalise_axis(int(call.attrs.channel_axis), rank) != 1 or axes != list(range(2, rank)):
        return None
    return _norm_of_groups(builder, call, data, groups)


def _instance_norm(builder: Builder, call: OperatorCall) -> Value | None:
    """The same with each channel a group of its own.

    Where the axes have the batch too, the statistics of a channel are over all of it: `torch.export` writes
    an InstanceNorm so, with a batch of 1, and a BatchNorm without running statistics.
    """
    data = call.value(0)
    rank = len(data.shape)
    axes, positions = sorted(normalise_axis(int(a), rank) for a in call.attrs.axes), list(range(2, rank))
    if normalise_axis(int(call.attrs.channel_axis), rank) != 1 or axes not in (positions, [0, *positions]):
        return None
    if axes == positions or data.shape[0] == 1:
        return _norm_of_groups(builder, call, data, data.shape[1])
    channels_first = (1, 0, *range(2, rank))
    swapped = builder.transpose(data, channels_first)
    rows = builder.reshape(swapped, (1, swapped.shape[0], *swapped.shape[1:]))
    norm = builder.reshape(_norm_of_groups(builder, call, rows, rows.shape[1]), swapped.shape)
    return builder.transpose(norm, channels_first)


def _norm_of_groups(builder: Builder, call: OperatorCall, data: Value, groups: int) -> Value:
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


SPECS: tuple[OpSpec, ...] = (
    OpSpec("batch_norm", read={"nn.batch_norm": _batch_norm}),
    OpSpec("group_norm", read={"nn.group_norm": _group_norm}),
    OpSpec("instance_norm", read={"nn.instance_norm": _instance_norm}),
)
