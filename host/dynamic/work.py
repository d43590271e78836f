"""What the worker of an open model file does: functions that take and return plain data. See `source`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from host.engines import PairedReference, engine_for_format
from host.errors import EngineError
from host.importers.assemble import content_hash, work_file
from host.importers.golden import Reference, all_finite, with_margins, with_spread
from host.importers.normalise import normalise
from host.importers.onnx.convert import convert_graph
from host.importers.onnx.importer import in_real_numbers, quantises
from host.importers.onnx.model_file import OnnxFile, read_onnx, write_pinned
from host.importers.onnx.operators import supported_operators
from host.importers.onnx.ranges import input_ranges
from host.importers.onnx.simplify import simplify
from host.importers.random_inputs import STYLES, InputRange, draw
from host.importers.worker.transfer import pack_golden, pack_module
from host.model import GoldenCase, TensorSpec

Shapes = dict[str, tuple[int, ...]]


def describe(path: str) -> dict[str, Any]:
    """The inputs that the file declares, and the file that its own runtime takes at any length."""
    file = _opened(path)
    return {
        "path": str(_whole_file(Path(path), file)),
        "inputs": [
            [entry.name, None if entry.dimensions is None else list(entry.dimensions), entry.dtype]
            for entry in file.inputs
        ],
        "outputs": [value.name for value in file.model.graph.output],
        "files": [str(file_) for file_ in file.files],
    }


def module_at(path: str, shapes: dict[str, list[int]]) -> dict[str, Any]:
    """The relax module at given shapes."""
    file = _opened(path)
    return pack_module(normalise(convert_graph(_simple(file, shapes), dict(file.weights))), Path.cwd())


def golden(path: str, runnable: str, shapes: list[dict[str, list[int]]], seed: int) -> dict[str, Any]:
    """One golden case for each set of shapes, with the spread of the original runtime.

    Raises:
        EngineError: the original runtime cannot run the model at these shapes, or gives nothing finite.
    """
    file, both = _opened(path), PairedReference()
    simple = [_simple(file, one) for one in shapes]
    ranges = [_ranges(file, graph, one) for graph, one in zip(simple, shapes, strict=True)]
    cases = golden_of(Path(runnable), ranges, seed, both.optimised)
    return pack_golden(_compared(file, simple, Path(runnable), cases, both.unoptimised), Path.cwd())


def _compared(
    file: OnnxFile,
    graphs: Sequence[onnx.ModelProto],
    runnable: Path,
    cases: Sequence[GoldenCase],
    unoptimised: Reference,
) -> tuple[GoldenCase, ...]:
    """Golden cases with their spread, one for each simplified graph; see `with_spread` and `with_margins`."""
    compare = with_spread if quantises(graphs[0]) else with_margins
    with tempfile.TemporaryDirectory(prefix="edgetlm-standard-") as folder:
        places = [Path(folder, f"{number}.onnx") for number in range(len(graphs))]
        references = [
            in_real_numbers(file, graph, place, unoptimised)
            for graph, place in zip(graphs, places, strict=True)
        ]
        if all(one == unoptimised for one in references):
            return compare(cases, "onnxruntime", runnable, unoptimised)
        pairs = zip(cases, references, strict=True)
        return tuple(compare([case], "onnxruntime", runnable, one)[0] for case, one in pairs)


def golden_of(
    path: Path, ranges: Sequence[Sequence[InputRange]], seed: int, reference: Reference
) -> tuple[GoldenCase, ...]:
    """One golden case for each list of inputs.

    Raises:
        EngineError: the original runtime cannot run the model with these, or gives nothing finite.
    """
    engine = engine_for_format("onnx").name
    failure: EngineError | None = None
    for attempt, style in enumerate(STYLES):
        generator = np.random.default_rng([seed, attempt])
        inputs = [draw(one, style, generator) for one in ranges]
        try:
            outputs = reference(engine, path, inputs)
        except EngineError as error:
            failure = failure or error
            continue
        if all(all_finite(value) for case in outputs for value in case):
            return tuple(GoldenCase(a, tuple(b)) for a, b in zip(inputs, outputs, strict=True))
    raise failure or EngineError(f"{path.name}: {engine} gave no finite outputs")


@lru_cache(maxsize=1)
def _opened(path: str) -> OnnxFile:
    """The file, read once in the life of a worker."""
    return read_onnx(Path(path))


def _simple(file: OnnxFile, shapes: dict[str, list[int]]) -> onnx.ModelProto:
    fixed: Shapes = {name: tuple(shape) for name, shape in shapes.items()}
    return simplify(file, fixed, supported_operators())


def _ranges(file: OnnxFile, simple: onnx.ModelProto, shapes: dict[str, list[int]]) -> Sequence[InputRange]:
    specs = tuple(TensorSpec(entry.name, tuple(shapes[entry.name]), entry.dtype) for entry in file.inputs)
    return input_ranges(simple, file.weights, specs)


def _whole_file(path: Path, file: OnnxFile) -> Path:
    """The file itself, or a copy with the weights that lie beside it."""
    if not file.external:
        return path.resolve()
    target = work_file(content_hash(file.files, {}), path.name)
    write_pinned(path, {}, target)
    return target
