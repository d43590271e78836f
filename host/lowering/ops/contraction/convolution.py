"""Convolutions: as read, and with weights packed by vector lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te

from host.lowering.builder import Builder
from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.expressions.windows import finish, padded_input, product, window
from host.lowering.graph import Node, Value
from host.lowering.ops.contraction import PADDED, PADDED_PRODUCT
from host.lowering.ops.image_layout import SPATIAL, channels_last, integers, order, plain
from host.lowering.passes.permutations.weights import convolution, depthwise
from host.lowering.reader.call import OperatorCall
from host.lowering.spec import Fusion, OpSpec


def _read(builder: Builder, call: OperatorCall) -> Value | None:
    attrs, data, weight = call.attrs, call.value(0), call.value(1)
    layout, out_layout = str(attrs.data_layout), str(attrs.out_layout or attrs.data_layout)
    if len(layout) != len(data.shape) or not plain(layout, out_layout):
        return None
    transposed = "transpose" in call.name
    last = channels_last(layout)
    kernel = "".join(letter for letter in last if letter in SPATIAL)
    weight = builder.transpose(weight, order(str(attrs.kernel_layout), kernel + "IO"))
    extra = {"output_padding": integers(attrs.output_padding)} if transposed else {}
    out_shape = tuple(call.shape[axis] for axis in order(out_layout, last))
    result = builder.one(
        "conv_transpose" if transposed else "conv",
        [builder.transpose(data, order(layout, last)), weight],
        out_shape,
        call.dtype,
        strides=integers(attrs.strides),
        padding=integers(attrs.padding),
        dilation=integers(attrs.dilation),
        groups=int(attrs.groups),
        **extra,
    )
    return builder.transpose(result, order(last, out_layout))


def _with_padding(builder: Builder, node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Zero padding before a convolution is the convolution's own."""
    data = inputs[0]
    order = None
    pad = data.producer
    if pad is not None and pad.op == "transpose":
        order, pad = pad.attrs["axes"], pad.inputs[0].producer
    if pad is None or pad.op != "pad" or pad.attrs["value"] != 0.0:
        return None
    before, after, source = pad.attrs["before"], pad.attrs["after"], pad.inputs[0]
    if order is not None:
        before, after = tuple(before[a] for a in order), tuple(after[a] for a in order)
        source = builder.transpose(source, order)
    if before[0] or after[0] or before[-1] or after[-1]:
        return None
    spatial = len(before) - 2
    padding = node.attrs["padding"]
    merged = tuple(p + b for p, b in zip(padding, (*before[1:-1], *after[1:-1]), strict=True))
    assert len(padding) == 2 * spatial
    attrs = {**node.attrs, "padding": merged}
    return builder.one("conv", [source, inputs[1]], node.output.shape, node.output.dtype, **attrs)


def taps_of(node: Node, kernel: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """The axes along the taps that are summed, and where each tap lies in the weight."""
    first = node.attrs.get("first_tap", (0,) * len(kernel))
    axes = [te.reduce_axis((0, size), f"r{d}") for d, size in enumerate(node.attrs.get("taps", kernel))]
    return axes, [axis + start if start else axis for axis, start in zip(axes, first, strict=True)]


def _packed(stage: Stage, node: Node) -> None:
    """Dense convolution; weight [O' / L, *K, C, L]; block "conv1d", "conv2d" or "conv3d"."""
    blocks, *kernel, channels, lanes = node.inputs[1].shape
    data, weight = padded_input(stage, node, node.attrs.get("fill", 0)), stage.argument(node.inputs[1])
    axes, taps = taps_of(node, kernel)
    ic = te.reduce_axis((0, channels), "ic")

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        x = data(n, *window(node, spatial, axes), ic)
        w = weight(oc // lanes, *taps, ic, oc % lanes)
        return te.sum(product(x, w, node.output.dtype), axis=[*axes, ic])

    shape = (*node.output.shape[:-1], blocks * lanes)
    finish(stage, node.output, stage.compute(shape, element, f"conv{len(kernel)}d"))


def _grouped(stage: Stage, node: Node) -> None:
    """Grouped convolution; weight [G, Og' / L, *K, Cg, L]; block "grouped_conv2d"."""
    groups, blocks, *kernel, channels, lanes = node.inputs[1].shape
    data, weight = padded_input(stage, node, node.attrs.get("fill", 0)), stage.argument(node.inputs[1])
    axes, taps = taps_of(node, kernel)
    ic = te.reduce_axis((0, channels), "ic")
    made = blocks * lanes

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        group, inner = oc // made, oc % made
        x = data(n, *window(node, spatial, axes), group * channels + ic)
        w = weight(group, inner // lanes, *taps, ic, inner % lanes)
        return te.sum(product(x, w, node.output.dtype), axis=[*axes, ic])

    shape = (*node.output.shape[:-1], groups * made)
    finish_groups(stage, node.output, stage.compute(shape, element, f"grouped_conv{len(kernel)}d"), groups)


def finish_groups(stage: Stage, value: Value, tensor: te.Tensor, groups: int) -> None:
    """Padded columns of each group are left out wherever the result is read."""
    made, kept = int(tensor.shape[-1]) // groups, value.shape[-1] // groups
    if made == kept:
        stage.define_tensor(value, tensor)
    else:
        stage.define(value, lambda i: load(tensor, [*i[:-1], (i[-1] // kept) * made + i[-1] % kept]))


def _depthwise(stage: Stage, node: Node) -> None:
    """Each channel by itself; weight [*K, O]; block "depthwise_conv2d".

    Sums of bytes are computed in float32 where the weight is of that type, else in int32; both are exact (see
    `use_integers`), and the result is int32.
    """
    *kernel, out_channels = node.inputs[1].shape
    multiplier = out_channels // node.inputs[0].shape[-1]
    data, weight = padded_input(stage, node, node.attrs.get("fill", 0)), stage.argument(node.inputs[1])
    sums = "float32" if node.inputs[1].is_float else node.output.dtype
    axes, taps = taps_of(node, kernel)

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        channel = oc if multiplier == 1 else oc // multiplier
        return te.sum(
            product(data(n, *window(node, spatial, axes), channel), weight(*taps, oc), sums), axis=axes
        )

    result = stage.compute(node.output.shape, element, f"depthwise_conv{len(kernel)}d")
    if sums == node.output.dtype:
        stage.define_tensor(node.output, result)
    else:
        stage.define(node.output, lambda indices: load(result, indices).astype(node.output.dtype))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "conv",
        read={f"nn.conv{n}d": _read for n in (1, 2, 3)},
        simplify=_with_padding,
        fusion=Fusion(anchor=True),
        sink_permutation=convolution,
    ),
    OpSpec(
        "conv_transpose",
        read={f"nn.conv{n}d_transpose": _read for n in (1, 2, 3)},
        fusion=Fusion(anchor=True),
    ),
    OpSpec("packed_conv", write=_packed, fusion=PADDED_PRODUCT),
    OpSpec("grouped_conv", write=_grouped, fusion=PADDED_PRODUCT),
    OpSpec("depthwise_conv", write=_depthwise, fusion=PADDED, sink_permutation=depthwise),
)
