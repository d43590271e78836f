"""Which importer reads a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from host.engines import run_reference
from host.errors import ModelFileError, ShapeError
from host.importers.golden import GoldenOptions, Reference
from host.language_file import is_language_model
from host.model import ImportedModel
from host.model_file import ULTRALYTICS, detect_format

if TYPE_CHECKING:
    import torch


def load_here(
    path: Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    golden_cases: int = 3,
    samples: Sequence[Sequence[np.ndarray]] | None = None,
    reference: Reference = run_reference,
    values: Mapping[str, Sequence[float]] | None = None,
    meanwhile: Callable[[Any], object] = lambda module: None,
) -> ImportedModel:
    """Read a model file in this process: for a file of one's own, and in the worker of `worker.parent.load`.

    Args:
        path: an ONNX, torch.export or TFLite file.
        shapes: shape by input name, for inputs whose dimensions the file leaves open.
        seed: of the golden inputs.
        golden_cases: number of golden cases.
        samples: inputs to use for golden cases instead of drawn ones, one sequence of arrays per case.
        reference: runs a model file in its original runtime.
        values: numbers of inputs that are fixed, by name; samples have none of these inputs.
        meanwhile: called with the module while a model that is not large runs in its original runtime.

    Returns:
        The model; its `module` is None, with a reason, if only the original runtime can run it.

    Raises:
        ModelFileError: missing, empty, truncated or not a model.
        ShapeError: a dimension stays open, or a given shape does not fit.
        EngineError: the original runtime cannot run it.
    """
    path = Path(path)
    given = dict(shapes or {})
    options = GoldenOptions(seed, golden_cases, samples, reference, meanwhile=meanwhile)
    format_name = detect_format(path)
    if is_language_model(format_name):
        raise ModelFileError(f"{path} is a language model: give --context, the tokens that it holds")
    if format_name == "onnx":
        from host.importers.onnx.importer import import_onnx

        return import_onnx(path, given, options, values or {})
    if values:
        raise ShapeError(f"{path.name}: --value goes only with an ONNX file: export the model to ONNX")
    if format_name == "pt2":
        from host.importers.torch.importer import import_pt2

        return import_pt2(path, given, options)
    if format_name == ULTRALYTICS:
        raise ModelFileError(f"{path} is a checkpoint: host.importers.ultralytics exports it")
    from host.importers.tflite.importer import import_tflite

    return import_tflite(path, given, options)


def from_module(
    module: torch.nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    name: str = "",
    seed: int = 0,
    golden_cases: int = 3,
) -> ImportedModel:
    """Export a torch module, which is the caller's own code, and import the archive like any other.

    Args:
        module: in evaluation mode.
        example_inputs: positional inputs of the shapes that it will run with.
        name: of the model; the module's class name by default.
        seed: of the golden inputs.
        golden_cases: number of golden cases.

    Raises:
        ImportFailed: `torch.export` cannot capture the module.
        EngineError: torch cannot run the exported program.
    """
    from host.importers.torch.importer import keep_module
    from host.importers.worker.parent import load

    kept = keep_module(module, example_inputs, name or type(module).__name__)
    return load(kept, {}, seed, golden_cases)
