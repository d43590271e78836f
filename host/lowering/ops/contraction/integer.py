"""Products of bytes into int32, and their form for dot products, with weights [N / L, K / G, L, G]."""

from __future__ import annotations

from tvm import te

from host.lowering.expressions.stage import Expression, Indices, Stage
from host.lowering.expressions.windows import finish, padded_input, product, window
from host.lowering.graph import Node
from host.lowering.ops.contraction import PADDED
from host.lowering.passes.integers.arrange_dots import arrange_dots
from host.lowering.passes.integers.fold_scales import fold_scales
from host.lowering.passes.integers.use_integers import use_integers
from host.lowering.spec import Fusion, GraphPass, OpSpec, Phase


def _dot_dense(stage: Stage, node: Node) -> None:
    """X [..., K] times weight [N' / L, K / G, L, G]; block "dot_matmul" computes N' >= N columns."""
    data, weight = stage.tensor(node.inputs[0], "prologue"), stage.argument(node.inputs[1])
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
    data, weight = padded_input(stage, node, node.attrs["fill"]), stage.argument(node.inputs[1])
    axes = [te.reduce_axis((0, size), f"r{d}") for d, size in enumerate(kernel)]
    k, q = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, group), "q")

    def element(indices: Indices) -> Expression:
        n, *spatial, oc = indices
        x = data(n, *window(node, spatial, axes), k * group + q)
        w = weight(oc // lanes, *axes, k, oc % lanes, q)
        return te.sum(product(x, w, node.output.dtype), axis=[*axes, k, q])

    shape = (*node.output.shape[:-1], blocks * lanes)
    finish(stage, node.output, stage.compute(shape, element, f"dot_conv{len(kernel)}d"))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        "integer_dense",
        passes=(GraphPass(Phase.READ, lambda graph, hardware: use_integers(graph)),),
        fusion=Fusion(anchor=True),
    ),
    OpSpec("integer_conv", fusion=Fusion(anchor=True)),
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
)
