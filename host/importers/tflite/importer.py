"""Reads a TFLite file into an `ImportedModel`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from host.engines import run_reference
from host.errors import EngineError, ShapeError
from host.importers.assemble import Source, assemble, content_hash
from host.importers.golden import GoldenOptions, decided, run_unoptimised, with_spread
from host.importers.pins import pin
from host.importers.random_inputs import InputRange, looks_like_mask
from host.importers.tflite.convert import convert_model
from host.importers.tflite.model_file import read_tflite
from host.model import GoldenCase, ImportedModel, TensorSpec


def import_tflite(path: Path, shapes: Mapping[str, Sequence[int]], options: GoldenOptions) -> ImportedModel:
    """Read a file, make golden outputs with LiteRT, and build the relax module.

    Raises:
        ModelFileError: the file is not a usable model.
        ShapeError: a dimension is open or does not fit.
        EngineError: LiteRT cannot run the model.
    """
    file = read_tflite(path)
    pinned = pin(path.name, file.inputs, shapes)
    for name, shape in pinned.items():
        if shape != file.default_shapes[name]:
            default = ",".join(map(str, file.default_shapes[name]))
            raise ShapeError(
                f"{path.name}: a TFLite file carries the sizes that it was converted for: "
                f"use --shape {name}={default}, or convert the model again with the size wanted"
            )
    digest = content_hash([path], pinned)
    specs = tuple(TensorSpec(entry.name, pinned[entry.name], entry.dtype) for entry in file.inputs)
    ranges = [_range(spec, file.tables[spec.name]) for spec in specs]
    source = Source(path.stem, "tflite", path.resolve(), specs, file.output_names, digest, file.parameters)
    model = assemble(source, ranges, lambda: convert_model(file.model), options)
    if not file.quantised or options.reference is not run_reference:
        return model
    return replace(model, golden=decided(_with_spread(model.golden, source.path, file.classes)))


def _with_spread(golden: Sequence[GoldenCase], path: Path, classes: Sequence[int]) -> tuple[GoldenCase, ...]:
    """The cases with their spread, by inputs alone where LiteRT cannot do without XNNPACK."""
    from host.importers.tflite.real_form import in_real_numbers

    with tempfile.TemporaryDirectory(prefix="edgetlm-real-") as folder:
        other: Path | None = None
        # LiteRT takes files too that lack what this form is made of.
        with contextlib.suppress(Exception):
            made = in_real_numbers(path.read_bytes())
            if made is not None:
                other = Path(folder, path.name)
                other.write_bytes(made)
        try:
            return with_spread(golden, "litert", path, run_unoptimised, other, classes)
        except EngineError:
            return with_spread(golden, "litert", path, run_reference, other, classes)


def _range(spec: TensorSpec, tables: Sequence[int]) -> InputRange:
    if "int" in spec.dtype and tables:
        return InputRange(spec, 0, min(tables))
    return InputRange(spec, mask="int" in spec.dtype and looks_like_mask(spec.name))
