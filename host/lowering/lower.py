"""The order of the passes."""

from __future__ import annotations

import tvm

from host.errors import ImportFailed
from host.lowering.emit import emit
from host.lowering.fusion import fuse
from host.lowering.graph import Graph
from host.lowering.ops import known_operators
from host.lowering.passes.decompose_transposed import decompose_transposed
from host.lowering.passes.fold_affine import fold_affine
from host.lowering.passes.pack_weights import pack_weights
from host.lowering.passes.padding.drop_taps import drop_taps
from host.lowering.passes.padding.split_by_region import split_by_region
from host.lowering.passes.pointwise_as_dense import pointwise_as_dense
from host.lowering.passes.recognise import recognise
from host.lowering.passes.reorder_products import reorder_products
from host.lowering.passes.share_equal import share_equal
from host.lowering.passes.simplify import simplify
from host.lowering.passes.sink_reshapes import sink_reshapes
from host.lowering.passes.sink_transposes import sink_transposes
from host.lowering.passes.split_sliced_dense import split_sliced_dense
from host.lowering.passes.widen_halves import widen_halves
from host.lowering.reader.relax_reader import read
from host.lowering.recurrent.expand import expand_recurrent
from host.lowering.spec import OperatorTable, Phase
from host.lowering.tasks import make_tasks
from host.model import ImportedModel, LoweredModel
from targets import Board, HardwareModel


def lower(
    model: ImportedModel,
    board: Board,
    approximate: bool = True,
    half: bool = False,
    any_length: bool = False,
    operators: OperatorTable | None = None,
) -> LoweredModel:
    """Lower a model for a board.

    Args:
        model: with its relax module.
        board: whose vector width decides how weights are packed, and whose hardware model where Winograd's
            algorithm pays.
        approximate: whether algorithms may be used whose results are less exact; without them all
            convolutions are direct.
        half: whether tensors lie in memory in half precision. Algorithms that are less exact are left out
            then: they lose what the rounding has left.
        any_length: whether the functions are to be generalised to other lengths of a dimension.
        operators: what the model may hold; by default all of `host.lowering.ops`.

    Raises:
        ImportFailed: the model has no relax module.
        LoweringError: the module holds something that has no lowering.
    """
    if model.module is None:
        raise ImportFailed(f"{model.name}: {model.reason}", model.operator)
    graph = read(model.module, operators or known_operators())
    if half:
        # A loop over steps is written for single precision.
        graph = expand_recurrent(graph, board.hardware.lanes, loops=False)
    graph = optimise(graph, board.hardware, approximate and not half, any_length)
    target = tvm.target.Target(board.tvm_target)
    module, parameters = emit(graph, fuse(graph), target, half, any_length)
    return LoweredModel(
        name=model.name,
        signature=model.signature,
        module=module,
        parameters=parameters,
        tasks=make_tasks(module),
        target=target,
    )


def optimise(
    graph: Graph, hardware: HardwareModel, approximate: bool = True, any_length: bool = False
) -> Graph:
    """All rewrites of the graph, in order.

    Args:
        graph: as read.
        hardware: the processor that the graph is for.
        approximate: whether passes may be used that make results less exact.
        any_length: whether it stands for graphs of other lengths too. What depends on the size of an image
            is left out then.
    """

    def at(phase: Phase, graph: Graph) -> Graph:
        for one in graph.operators.passes:
            left_out = (one.approximate and not approximate) or (one.one_length and any_length)
            if one.phase is phase and not left_out:
                graph = one.run(graph, hardware)
        return graph

    loops = hardware.gpu is None and not any_length
    graph = expand_recurrent(graph, hardware.lanes, loops)
    graph = share_equal(at(Phase.READ, widen_halves(graph)))
    # Views out of the way first: what belongs together is then written without them.
    graph = sink_reshapes(simplify(graph))
    graph = recognise(simplify(graph))
    graph = sink_transposes(graph)
    graph = simplify(graph)
    if not any_length:
        graph = drop_taps(graph)
    graph = sink_reshapes(reorder_products(sink_reshapes(pointwise_as_dense(graph))))
    graph = split_sliced_dense(graph)
    graph = simplify(graph)
    graph = fold_affine(graph)
    graph = decompose_transposed(graph)
    if not any_length:
        graph = split_by_region(graph)
    graph = share_equal(at(Phase.SIMPLIFIED, graph))
    return at(Phase.PACKED, pack_weights(graph, hardware.lanes))
