"""Products of bytes into int32, and dot products, with weights [N / L, K / G, L, G].

Dot products are of bytes, or of numbers of bfloat16 into float32: their activations are read as bfloat16, and
rounded to it where they lie in memory as something else.
"""

from __future__ import annotations

from tvm import te

from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.expressions.windows import finish, padded_input, product, window
from host.lowering.graph import Node
from host.lowering.ops.contraction import PADDED
from host.lowering.ops.contraction.convolution import finish_groups, taps_of
from host.lowering.passes.integers.arrange_dots import arrange_dots
from host.lowering.passes.integers.fold_scales import fold_scales
from host.lowering.passes.integers.use_integers import use_integers
from host.lowering.passes.permutations.weights import convolution
from host.lowering.passes.permutations.weights import product as reordered
from host.lowering.spec import Fusion, GraphPass, OpSpec, Phase


def _factor_type(node: Node) -> str:
    """The type of the activations that a dot product multiplies."""
    data, weight = node.inputs
    return weight.dtype if weight.is_float else data.dtype


def _dot_dense(stage: Stage, node: Node) -> None:
    """X [..., K] times weight [N' / L, K / G, L, G]; block "dot_matmul" computes N' >= N columns."""
    data = stage.tensor_as(node.inputs[0], _factor_type(node), "prologue")
    weight = stage.argument(node.inputs[1])
    blocks, depth, lanes, group = node.inputs[1].shape
    k, q = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, group), "q")

    def element(indices: Indices) -> Expression:
        *rows, j = indices
        x = data(*rows, k * group + q)
        return te.sum(product(x, weight(j // lanes, k, j % lanes, q), node.output.dtype), axis=[k, q])

    shape = (*node.output.shape[:-1], blocks * lanes)
    finish(stage, node.output, stage.compute(shape, element, "dot_matmul"))


def _dot_conv(stage: Stage, node: Node) -> None:
    """Convolution; weight [O' / L, *K, C / G, L, G]; block "dot_conv2d" and the like."""
    blocks, *kernel, depth, lanes, group = node.inputs[1].shape
    data = padded_input(stage, node, node.attrs["fill"], _factor_type(node))
    weight = stage.argument(node.inputs[1])
    axes, taps = taps_of(node, kernel)
    k, q = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, group), "q")

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        x = data(n, *window(node, spatial, axes), k * group + q)
        w = weight(oc // lanes, *taps, k, oc % lanes, q)
        return te.sum(product(x, w, node.output.dtype), axis=[*axes, k, q])

    shape = (*node.output.shape[:-1], blocks * lanes)
    finish(stage, node.output, stage.compute(shape, element, f"dot_conv{len(kernel)}d"))


def _dot_grouped_conv(stage: Stage, node: Node) -> None:
    """Grouped convolution; weight [groups, Og' / L, *K, Cg / G, L, G]; block "dot_grouped_conv2d"."""
    groups, blocks, *kernel, depth, lanes, group = node.inputs[1].shape
    data = padded_input(stage, node, node.attrs["fill"], _factor_type(node))
    weight = stage.argument(node.inputs[1])
    axes, taps = taps_of(node, kernel)
    k, q = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, group), "q")
    made = blocks * lanes

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        of, inner = oc // made, oc % made
        x = data(n, *window(node, spatial, axes), of * depth * group + k * group + q)
        w = weight(of, inner // lanes, *taps, k, inner % lanes, q)
        return te.sum(product(x, w, node.output.dtype), axis=[*axes, k, q])

    tensor = stage.compute(
        (*node.output.shape[:-1], groups * made), element, f"dot_grouped_conv{len(kernel)}d"
    )
    finish_groups(stage, node.output, tensor, groups)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "integer_dense",
        passes=(GraphPass(Phase.READ, use_integers),),
        fusion=Fusion(anchor=True),
        sink_permutation=reordered,
    ),
    OpSpec("integer_conv", fusion=Fusion(anchor=True), sink_permutation=convolution),
    OpSpec(
        "dot_dense",
        write=_dot_dense,
        passes=(
            GraphPass(Phase.SIMPLIFIED, arrange_dots),
            GraphPass(Phase.SIMPLIFIED, lambda graph, hardware: fold_scales(graph)),
        ),
        fusion=Fusion(anchor=True),
    ),
    OpSpec("dot_conv", write=_dot_conv, fusion=PADDED),
    OpSpec("integer_grouped_conv", fusion=Fusion(anchor=True), sink_permutation=convolution),
    OpSpec("dot_grouped_conv", write=_dot_grouped_conv, fusion=PADDED),
)
