"""Products of halves: sums of blocks in halves ("half_sums"), and the sums of these in single precision."""

from __future__ import annotations

from tvm import te, tirx

from host.lowering.expressions.stage import Expression, Indices, Stage, load
from host.lowering.expressions.windows import finish, padded_input, window
from host.lowering.graph import Node
from host.lowering.ops.contraction import PADDED
from host.lowering.ops.contraction.convolution import taps_of
from host.lowering.passes.halves.half_sums import use_half_sums
from host.lowering.spec import Fusion, GraphPass, OpSpec, Phase

_HALF = "float16"
# Minus zero changes no number that it is added to, so that a block begins with its first product; plus zero
# would be written to each sum first.
_block_sum = te.comm_reducer(lambda a, b: a + b, lambda t: tirx.const(-0.0, t), name="block_sum")


def _dense(stage: Stage, node: Node) -> None:
    """X [..., K] times weight [N' / L, K, L]; block "matmul" adds the sums of blocks of the depth."""
    data = stage.tensor_as(node.inputs[0], _HALF, "prologue")
    weight = stage.tensor_as(node.inputs[1], _HALF, "weights")
    blocks, depth, lanes = node.inputs[1].shape
    size = node.attrs["block"]
    k, part = te.reduce_axis((0, size), "k"), te.reduce_axis((0, depth // size), "part")

    def block_sum(indices: Indices) -> Expression:
        number, *rows, j = indices
        x = data(*rows, number * size + k)
        return _block_sum(x * weight(j // lanes, number * size + k, j % lanes), axis=[k])

    shape = (*node.output.shape[:-1], blocks * lanes)
    sums = stage.compute((depth // size, *shape), block_sum, "half_sums")

    def total(indices: Indices) -> Expression:
        return te.sum(load(sums, [part, *indices]).astype(node.output.dtype), axis=[part])

    finish(stage, node.output, stage.compute(shape, total, "matmul"))


def _conv(stage: Stage, node: Node) -> None:
    """Convolution; weight [O' / L, *K, C, L]; block "conv2d" and the like adds the sums of blocks."""
    blocks, *kernel, channels, lanes = node.inputs[1].shape
    data = padded_input(stage, node, 0.0, _HALF)
    weight = stage.tensor_as(node.inputs[1], _HALF, "weights")
    size = node.attrs["block"]
    axes, _ = taps_of(node, kernel)
    k, part = te.reduce_axis((0, size), "k"), te.reduce_axis((0, channels // size), "part")
    extents = [int(axis.dom.extent) for axis in axes]
    first = node.attrs.get("first_tap", (0,) * len(kernel))

    def block_sum(indices: Indices) -> Expression:
        inner, (number, n, *spatial, oc) = list(indices[: len(axes)]), indices[len(axes) :]
        steps = zip(spatial, inner, node.attrs["strides"], node.attrs["dilation"], strict=True)
        x = data(n, *(o * s + r * d for o, r, s, d in steps), number * size + k)
        own = [tap + start for tap, start in zip(inner, first, strict=True)]
        return _block_sum(x * weight(oc // lanes, *own, number * size + k, oc % lanes), axis=[k])

    shape = (*node.output.shape[:-1], blocks * lanes)
    sums = stage.compute((*extents, channels // size, *shape), block_sum, "half_sums")

    def total(indices: Indices) -> Expression:
        value = load(sums, [*axes, part, *indices])
        return te.sum(value.astype(node.output.dtype), axis=[*axes, part])

    finish(stage, node.output, stage.compute(shape, total, f"conv{len(kernel)}d"))


def _depthwise(stage: Stage, node: Node) -> None:
    """Each channel by itself; weight [*K, C]; block "depthwise_conv2d", all of it in halves."""
    *kernel, _ = node.inputs[1].shape
    data = padded_input(stage, node, 0.0, _HALF)
    weight = stage.tensor_as(node.inputs[1], _HALF, "weights")
    axes, taps = taps_of(node, kernel)

    def element(indices: Indices) -> Expression:
        n, *spatial, channel = indices
        return te.sum(data(n, *window(node, spatial, axes), channel) * weight(*taps, channel), axis=axes)

    result = stage.compute(node.output.shape, element, f"depthwise_conv{len(kernel)}d")
    stage.define(node.output, lambda indices: load(result, indices).astype(node.output.dtype))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "half_dense",
        write=_dense,
        passes=(GraphPass(Phase.SIMPLIFIED, use_half_sums, half=_HALF, decides=True),),
        fusion=Fusion(anchor=True),
    ),
    OpSpec("half_conv", write=_conv, fusion=PADDED),
    OpSpec("half_depthwise_conv", write=_depthwise, fusion=PADDED),
)
