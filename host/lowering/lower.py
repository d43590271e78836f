"""The order of the passes."""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from device_agent.contract.manifest import LONG_PREFILL, PREFILL, TOGETHER, VERIFY
from host.errors import ImportFailed, LoweringError
from host.lowering.choices import Choices
from host.lowering.emit import emit
from host.lowering.entries import MAIN, Entry, merged
from host.lowering.fusion import fuse
from host.lowering.graph import Graph, weights_bytes
from host.lowering.ops import known_operators
from host.lowering.passes.convolutions.apply_before_joining import apply_before_joining
from host.lowering.passes.convolutions.decompose_transposed import decompose_transposed
from host.lowering.passes.convolutions.join_branches import join_branches
from host.lowering.passes.convolutions.join_columns import join_columns
from host.lowering.passes.convolutions.join_slices import join_slices
from host.lowering.passes.fold_affine import fold_affine
from host.lowering.passes.halves.choose_types import choose_types
from host.lowering.passes.pack_weights import pack_weights
from host.lowering.passes.padding.drop_taps import drop_taps
from host.lowering.passes.padding.split_by_region import split_by_region
from host.lowering.passes.permutations.sink_permutations import only_channels, sink_permutations
from host.lowering.passes.pointwise_as_dense import pointwise_as_dense
from host.lowering.passes.recognise import recognise
from host.lowering.passes.reorder_products import reorder_products
from host.lowering.passes.simplify import simplify
from host.lowering.passes.sink_reshapes import sink_reshapes
from host.lowering.passes.sink_transposes import sink_transposes
from host.lowering.passes.split_sliced_dense import split_sliced_dense
from host.lowering.passes.use_bfloat16 import use_bfloat16
from host.lowering.passes.widen_halves import widen_halves
from host.lowering.reader.relax_reader import read
from host.lowering.rebuild import remove_dead
from host.lowering.recurrent.expand import expand_recurrent
from host.lowering.sharing.share_equal import share_constants, share_equal
from host.lowering.spec import OperatorTable, Phase
from host.lowering.tasks import layers_by_kernel, make_tasks
from host.model import ImportedModel, LoweredModel
from targets import Board, HardwareModel


def lower(
    model: ImportedModel,
    board: Board,
    approximate: bool = True,
    half: str = "",
    any_length: bool = False,
    operators: OperatorTable | None = None,
    decisions: Mapping[str, int] | None = None,
) -> LoweredModel:
    """Lower a model for a board.

    Args:
        model: with its relax module.
        board: whose vector width decides how weights are packed, and whose hardware model where Winograd's
            algorithm pays.
        approximate: whether algorithms may be used whose results are less exact; without them all
            convolutions are direct.
        half: type of half precision in which tensors lie in memory, "float16" or "bfloat16"; "" for single
            precision. Algorithms that are less exact lose far less than the rounding to float16 does; with
            bfloat16, whose products round activations again, they are left out. As bfloat16, dense layers and
            convolutions are dot products of the processor where these are faster than multiply-adds.
        any_length: whether the functions are to be generalised to other lengths of a dimension.
        operators: what the model may hold; by default all of `host.lowering.ops`.
        decisions: of a plan, by the names of the sites; what it does not name, the passes decide. Models
            with entries beside `main`, for other lengths or for a GPU have no sites.

    Raises:
        ImportFailed: the model has no relax module.
        LoweringError: the module holds something that has no lowering, or has state and is to be compiled
            for what state is not compiled for, or the processor has no dot products of bfloat16; or a plan
            decides what is not possible.
    """
    if half == "bfloat16" and board.hardware.bfloat16 is None:
        raise LoweringError(f"{board.title} has no dot products of bfloat16; use --dtype fp32.")
    if model.module is None:
        raise ImportFailed(f"{model.name}: {model.reason}", model.operator)
    if model.state:
        _require_state(model.name, half, any_length)
    target = tvm.target.Target(board.tvm_target)

    choices = Choices(decisions)
    gpu = board.hardware.gpu
    on_matrices = gpu is not None and half == "float16" and gpu.matrix_fp16_per_cycle > 0

    # Weights and states are halves then, and all else is computed as in single precision.
    single = gpu is None and model.decoder is not None and model.decoder.single

    def entry(name: str, module: tvm.IRModule, texts: int = 1) -> Entry:
        graph = read(module, operators or known_operators())
        _check_state(model.name, graph, texts * len(model.state))
        if half:
            # A loop over steps is written for single precision.
            graph = expand_recurrent(graph, board.hardware, loops=False)
        rounded = "" if single else half
        graph = optimise(
            graph, board.hardware, approximate and half != "bfloat16", any_length, rounded, choices
        )
        groups = fuse(graph, choices, on_matrices, gpu is not None)
        emitted = emit(graph, groups, target, half, any_length, choices.types, between=not single)
        # Halves take less than the graph says.
        stored = sum(array.nbytes for array in emitted[1])
        return Entry(name, *emitted, weights_bytes=min(weights_bytes(graph), stored))

    made = [entry(MAIN, model.module)]
    if model.decoder is not None:
        made.append(entry(PREFILL, model.decoder.prefill))
        if model.decoder.verify is not None:
            made.append(entry(VERIFY, model.decoder.verify))
        if model.decoder.together is not None:
            made.append(entry(TOGETHER, model.decoder.together, model.decoder.sequences))
        # The last one: without it, the others' kernels have the same names.
        if model.decoder.long_prefill is not None:
            made.append(entry(LONG_PREFILL, model.decoder.long_prefill))
    first = made[0]
    module, parameters, layers, calls = (
        merged(made)
        if len(made) > 1
        else (first.module, first.parameters, layers_by_kernel(first.calls), first.calls)
    )
    others = tuple(one.name for one in made[1:])
    has_plan = not any_length and board.hardware.gpu is None
    return LoweredModel(
        name=model.name,
        signature=model.signature,
        module=module,
        parameters=parameters,
        tasks=make_tasks(module, others, layers, first.weights_bytes),
        target=target,
        state=model.state,
        entries=others,
        sequences=model.decoder.sequences if model.decoder is not None else 1,
        calls=calls,
        sites=choices.sites if has_plan and len(made) == 1 else (),
    )


def _require_state(name: str, half: str, any_length: bool) -> None:
    """Refuse what a model with state cannot be compiled for."""
    refused = {
        "in bfloat16: use --dtype fp16": half == "bfloat16",
        "for a range of lengths: pin its shapes": any_length,
    }
    for what, asked in refused.items():
        if asked:
            raise LoweringError(f"{name} keeps state between calls, which is not compiled {what}.")


def _check_state(name: str, graph: Graph, count: int) -> None:
    """Refuse a graph in which the order of what changes its state, or reads it, would be open.

    An operation changes state in place, and the graph only has the order of its data: one operation may have
    each state, and what it gives must be used.

    Args:
        name: of the model.
        graph: as read; its last inputs are the state.
        count: tensors of state.
    """
    if not count:
        return
    readers, kept = graph.consumers(), remove_dead(graph).consumers()
    outputs = set(graph.output_values())
    for value in graph.inputs[len(graph.inputs) - count :]:
        found = len(readers.get(value, ()))
        if found > 1 or found > len(kept.get(value, ())) or value in outputs:
            raise LoweringError(
                f"{name}: the state {value.name} is read by {found} operations, or returned as it is; "
                "let one operation read and change it, and use its result."
            )


def optimise(
    graph: Graph,
    hardware: HardwareModel,
    approximate: bool = True,
    any_length: bool = False,
    half: str = "",
    choices: Choices | None = None,
) -> Graph:
    """All rewrites of the graph, in order.

    Args:
        graph: as read.
        hardware: the processor that the graph is for.
        approximate: whether passes may be used that make results less exact.
        any_length: whether it stands for graphs of other lengths too. What depends on the size of an image
            is left out then.
        half: as of `lower`.
        choices: of a plan; the passes' own if None.
    """
    taken = choices or Choices()

    def at(phase: Phase, graph: Graph) -> Graph:
        for one in graph.operators.passes:
            left_out = (one.approximate and not approximate) or (one.one_length and any_length)
            left_out = left_out or bool(one.single and half)
            if one.phase is phase and not left_out and one.half in ("", half):
                graph = one.apply(graph, hardware, taken)
        return graph

    loops = hardware.gpu is None and not any_length
    graph = expand_recurrent(graph, hardware, loops)
    graph = share_equal(at(Phase.READ, widen_halves(graph)), any_length)
    # Views out of the way first: what belongs together is then written without them.
    graph = sink_reshapes(simplify(graph))
    graph = recognise(simplify(graph))
    graph = only_channels(sink_transposes(graph))
    graph = simplify(graph)
    if not any_length:
        graph = drop_taps(graph)
    graph = pointwise_as_dense(apply_before_joining(graph))
    graph = sink_reshapes(reorder_products(sink_reshapes(graph)))
    graph = split_sliced_dense(sink_permutations(graph))
    graph = simplify(graph)
    graph = fold_affine(graph)
    if not any_length:
        graph = join_branches(graph)
    graph = decompose_transposed(graph, any_length)
    if not any_length:
        graph = split_by_region(graph)
    if approximate and not any_length:
        graph = join_slices(graph, hardware, taken)
    if loops and not half:
        graph = join_columns(graph, hardware.lanes)
    if loops and half:
        choose_types(graph, half, taken)
    graph = share_equal(at(Phase.SIMPLIFIED, graph), any_length)
    if half == "bfloat16" and hardware.has_fast_bfloat16_layers:
        graph = use_bfloat16(graph, hardware.lanes, hardware.halves_vectors, taken)
    # Threads of a GPU are no vectors, and a range of lengths has one packing.
    packing = None if any_length or hardware.gpu is not None else taken
    packed = at(Phase.PACKED, pack_weights(graph, hardware.lanes, hardware.halves_vectors, packing))
    # Weights that passes arrange node by node are equal again where they were equal before.
    return packed if any_length else share_constants(packed)
