"""Reads an ONNX file into an `ImportedModel`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from host.engines import PairedReference, run_reference
from host.errors import EngineError
from host.importers.assemble import Source, assemble, content_hash, work_file
from host.importers.golden import (
    GoldenOptions,
    Reference,
    decided,
    is_moved,
    moved_by_roundings,
    run_unoptimised,
    with_spread,
)
from host.importers.half_spread import has_halves, with_rounding_of_halves
from host.importers.onnx.contributed import expand_contributed, rounds_inside
from host.importers.onnx.convert import convert_graph
from host.importers.onnx.fixed_inputs import (
    Values,
    check_names,
    feeding,
    fixed_arrays,
    hint,
    with_constants,
    with_lengths,
    write_fixed,
)
from host.importers.onnx.model_file import (
    OnnxFile,
    SequencesFound,
    read_onnx,
    with_weights,
    write_model,
    write_pinned,
)
from host.importers.onnx.operators import supported_operators
from host.importers.onnx.ranges import input_ranges
from host.importers.onnx.sequences.interface import with_tensors
from host.importers.onnx.simplify import simplify
from host.importers.pins import DeclaredInput, pin
from host.importers.random_inputs import InputRange
from host.model import ImportedModel, TensorSpec

# Files in halves with more weights are not computed in single precision too: these are in memory three times.
_MOST_IN_SINGLE = 1 << 29
# Fewer numbers may be scales of an image, of which another gives another size.
_WEIGHTS = 64
# Operators that give elements of their first input.
_MOVING = frozenset(
    {"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape"}
    | {"Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)


def import_onnx(
    path: Path, shapes: Mapping[str, Sequence[int]], options: GoldenOptions, values: Values
) -> ImportedModel:
    """Read a file, make golden outputs with ONNX Runtime, and build the relax module.

    Args:
        path: the file.
        shapes: see `pin`.
        options: of the golden cases; samples have no fixed inputs.
        values: numbers of the inputs that are fixed, by name.

    Raises:
        ModelFileError: the file is not a usable model.
        ShapeError: a dimension is open or does not fit, or a value does not.
        EngineError: ONNX Runtime cannot run the model.
    """
    try:
        file = read_onnx(path)
    except SequencesFound as found:
        path = with_tensors(path, found.files, shapes, values, supported_operators())
        file = read_onnx(path)
    declared, parameters = file.inputs, file.parameters
    check_names(file.name, declared, values)
    pinned = pin(file.name, declared, with_lengths(declared, shapes, values))
    fixed = fixed_arrays(file.name, declared, pinned, values)
    digest = content_hash(file.files, pinned)
    runnable = _runnable_file(path, file, pinned, digest)
    original = options.reference is run_reference
    if fixed:
        options = replace(options, reference=feeding(options.reference, runnable, declared, fixed))
        digest = content_hash(file.files, pinned, fixed)
        runnable = _fixed_file(runnable, fixed, work_file(digest, f"{path.stem}.onnx"))
        file = with_constants(file, fixed)
    specs = tuple(TensorSpec(entry.name, pinned[entry.name], entry.dtype) for entry in file.inputs)
    simple = simplify(file, pinned, supported_operators())
    ranges = input_ranges(simple, file.weights, specs)
    names = tuple(value.name for value in file.model.graph.output)
    source = Source(path.stem, "onnx", runnable, specs, names, digest, parameters)
    if not original:
        return _explained(
            assemble(source, ranges, lambda: convert_graph(simple, file.weights), options), file.inputs
        )
    quantised = quantises(simple)
    with tempfile.TemporaryDirectory(prefix="edgetlm-standard-") as folder:
        both = PairedReference()
        unoptimised = in_real_numbers(file, simple, Path(folder, "model.onnx"), both.unoptimised)
        either = _FusedOrNot(options.reference)
        if quantised:
            options = replace(options, reference=either)
        else:
            options = replace(options, unoptimised=unoptimised)
        if not quantised and not fixed and options.samples is None and unoptimised == both.unoptimised:
            options = replace(options, reference=both.optimised)
        moved: Path | None = None
        if quantised and not _has_real_inputs(ranges, options):
            moved = Path(folder, "moved.onnx")
            write_model(_moved(with_weights(simple, file.weights)), moved)
        # The weights leave the file where it is converted.
        few = not quantised and parameters <= _MOST_IN_SINGLE
        in_halves = few and has_halves(file.model, file.weights)
        halves = with_weights(simple, file.weights) if in_halves else None
        model = assemble(source, ranges, lambda: convert_graph(simple, file.weights), options)
        model = _explained(model, file.inputs)
        if not quantised:
            if halves is None:
                return model
            return replace(model, golden=decided(with_rounding_of_halves(model.golden, halves)))
        if either.refused and moved is None:
            # There are no two ways of computing it, and moved inputs may become the same bytes.
            moved = Path(folder, "moved.onnx")
            write_model(_moved(onnx.load(runnable)), moved)
        golden = with_spread(
            model.golden, "onnxruntime", runnable, unoptimised, moved, _classes(simple.graph)
        )
        return replace(model, golden=decided(golden))


def _classes(graph: onnx.GraphProto) -> tuple[int, ...]:
    """Which outputs of a quantised graph are integers of other origin than a quantisation, by index."""
    made = {name: node for node in graph.node for name in node.output}

    def stands(name: str) -> bool:
        while name in made:
            node = made[name]
            if "QuantizeLinear" in node.op_type or node.op_type.startswith("QLinear"):
                return True
            if node.op_type not in _MOVING:
                return False
            name = node.input[0]
        return False

    return tuple(place for place, value in enumerate(graph.output) if not stands(value.name))


def _has_real_inputs(ranges: Sequence[InputRange], options: GoldenOptions) -> bool:
    """Whether there are inputs that can be off by roundings."""
    if options.samples is not None:
        return any(is_moved(value) for case in options.samples for value in case)
    return any("float" in one.spec.dtype and not one.mask and one.value is None for one in ranges)


def _moved(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, changed in place, with weights in floats that are off by a few roundings."""
    generator = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and np.prod(tensor.dims) >= _WEIGHTS:
            (array,) = moved_by_roundings([numpy_helper.to_array(tensor)], generator)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def _explained(model: ImportedModel, declared: Sequence[DeclaredInput]) -> ImportedModel:
    """A model without a module says which option may help."""
    return replace(model, reason=hint(model.reason, declared)) if model.module is None else model


def in_real_numbers(
    file: OnnxFile, simple: onnx.ModelProto, place: Path, unoptimised: Reference
) -> Reference:
    """What runs a model without the engine's optimisations, and operators that round inside in real numbers.

    Args:
        file: the model.
        simple: its simplified graph.
        place: for a file of the model in standard operators, where it has others.
        unoptimised: what runs a model that has none.
    """
    if not rounds_inside(file.model):
        return unoptimised
    standard = with_weights(simple, file.weights)
    expand_contributed(file.name, standard, sums_in_reals=True)
    write_model(standard, place)
    return _run_either(place)


def _run_either(standard: Path) -> Reference:
    """Runs a model in standard operators without graph optimisations, or its own file where that fails.

    A contributed or a quantised operator is one kernel without them too: how the outputs depend on roundings
    inside of it shows only in the operators that it consists of.
    """

    def run(engine: str, path: Path, inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        try:
            return run_unoptimised(engine, standard, inputs)
        except EngineError:  # such as numbers of 16 bits before version 21 of the standard
            return run_unoptimised(engine, path, inputs)

    return run


class _FusedOrNot:
    """Runs a quantised model as it is; without graph optimisations where the engine refuses what it fused.

    (Seen with ONNX Runtime 1.31: a product of two activations with scales along an axis of the second.)

    Attributes:
        refused: whether the engine refused the model as it is.
    """

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self.refused = False

    def __call__(
        self, engine: str, path: Path, inputs: Sequence[Sequence[np.ndarray]]
    ) -> list[list[np.ndarray]]:
        """See `run_reference`."""
        try:
            return self._reference(engine, path, inputs)
        except EngineError:
            with contextlib.suppress(EngineError):
                outputs = run_unoptimised(engine, path, inputs)
                self.refused = True
                return outputs
            raise


def quantises(model: onnx.ModelProto) -> bool:
    """Whether a graph has quantised tensors, of whose sums some are rounded to either side."""
    names = [node.op_type for node in model.graph.node]
    return any("QuantizeLinear" in name or name.startswith("QLinear") for name in names)


def _runnable_file(path: Path, file: OnnxFile, pinned: dict[str, tuple[int, ...]], digest: str) -> Path:
    """The file itself if it has no open dimension and no second file, otherwise a pinned copy."""
    declared = {entry.name: entry.dimensions for entry in file.inputs}
    if declared == pinned and not file.external:
        return path.resolve()
    target = work_file(digest, f"{path.stem}.onnx")
    if not target.is_file():
        partial = target.with_name(f"partial-{target.name}")
        write_pinned(path, pinned, partial)
        partial.rename(target)
    return target


def _fixed_file(path: Path, fixed: Mapping[str, np.ndarray], target: Path) -> Path:
    """A copy of a file whose fixed inputs are constants, for engines that are compared."""
    if not target.is_file():
        partial = target.with_name(f"partial-{target.name}")
        write_fixed(path, fixed, partial)
        partial.rename(target)
    return target
