"""The order of the passes."""

from __future__ import annotations

import tvm

from host.errors import ImportFailed
from host.lowering.emit import emit
from host.lowering.fusion import fuse
from host.lowering.graph import Graph
from host.lowering.ops import known_operators
from host.lowering.passes.decompose_transposed import decompose_transposed
from host.lowering.passes.drop_padding_taps import drop_padding_taps
from host.lowering.passes.fold_affine import fold_affine
from host.lowering.passes.integers.arrange_dots import arrange_dots
from host.lowering.passes.integers.fold_scales import fold_scales
from host.lowering.passes.integers.use_integers import use_integers
from host.lowering.passes.pack_weights import pack_weights
from host.lowering.passes.pointwise_as_dense import pointwise_as_dense
from host.lowering.passes.recognise import recognise
from host.lowering.passes.share_equal import share_equal
from host.lowering.passes.simplify import simplify
from host.lowering.passes.sink_reshapes import sink_reshapes
from host.lowering.passes.sink_transposes import sink_transposes
from host.lowering.passes.split_by_padding import split_by_padding
from host.lowering.passes.split_sliced_dense import split_sliced_dense
from host.lowering.passes.use_winograd import use_winograd
from host.lowering.passes.widen_halves import widen_halves
from host.lowering.reader.relax_reader import read
from host.lowering.spec import OperatorTable
from host.lowering.tasks import make_tasks
from host.model import ImportedModel, LoweredModel
from targets import Board


def lower(
    model: ImportedModel,
    board: Board,
    winograd: bool = True,
    half: bool = False,
    any_length: bool = False,
    operators: OperatorTable | None = None,
) -> LoweredModel:
    """Lower a model for a board.

    Args:
        model: with its relax module.
        board: whose vector width decides how weights are packed, and whose hardware model where Winograd's
            algorithm pays.
        winograd: whether that algorithm may be used; without it all convolutions are direct.
        half: whether tensors lie in memory in half precision. Winograd's algorithm is left out then: its
            transforms lose what the rounding has left.
        any_length: whether the functions are to be generalised to other lengths of a dimension.
        operators: what the model may hold; by default all of `host.lowering.ops`.

    Raises:
        ImportFailed: the model has no relax module.
        LoweringError: the module holds something that has no lowering.
    """
    if model.module is None:
        raise ImportFailed(f"{model.name}: {model.reason}", model.operator)
    graph = read(model.module, operators or known_operators())
    graph = optimise(graph, board.hardware.lanes, board.hardware.dot_product, any_length)
    if winograd and not half:
        graph = use_winograd(graph, board.hardware)
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


def optimise(graph: Graph, lanes: int, dot_product: str = "", any_length: bool = False) -> Graph:
    """All rewrites of the graph, in order.

    Args:
        graph: as read.
        lanes: fp32 elements of the target's vector.
        dot_product: of its `HardwareModel`.
        any_length: whether it stands for graphs of other lengths too. What depends on the size of an image
            is left out then.
    """
    graph = share_equal(use_integers(widen_halves(graph)))
    # Views out of the way first: what belongs together is then written without them.
    graph = sink_reshapes(simplify(graph))
    graph = recognise(simplify(graph))
    graph = sink_transposes(graph)
    graph = simplify(graph)
    if not any_length:
        graph = drop_padding_taps(graph)
    graph = sink_reshapes(pointwise_as_dense(graph))
    graph = split_sliced_dense(graph)
    graph = simplify(graph)
    graph = fold_affine(graph)
    graph = decompose_transposed(graph)
    if not any_length:
        graph = split_by_padding(graph)
    graph = fold_scales(arrange_dots(graph, lanes, dot_product))
    graph = share_equal(graph)
    return pack_weights(graph, lanes)
