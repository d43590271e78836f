"""`torch.export` archives and torch modules to `ImportedModel`."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from host.importers.assemble import Source, assemble, content_hash, work_file  # isort: split

import torch
from torch.export.graph_signature import InputKind, TensorArgument

from device_agent.contract.pt2.archive import check_archive, load_libraries, weights_only
from host.errors import ImportFailed, ModelFileError, ShapeError
from host.importers.golden import GoldenOptions
from host.importers.pins import DeclaredInput, pin
from host.importers.random_inputs import InputRange
from host.importers.torch.convert import convert_program
from host.importers.torch.ranges import input_ranges
from host.model import ImportedModel, TensorSpec


def import_pt2(path: Path, shapes: Mapping[str, Sequence[int]], options: GoldenOptions) -> ImportedModel:
    """Read an archive, make golden outputs with torch, and build the relax module.

    Raises:
        ModelFileError: the file is not a usable archive.
        ShapeError: a dimension is open or does not fit.
        EngineError: torch cannot run the model.
    """
    program = _read(path)
    _check_weights(path, program)
    declared = _declared(program)
    _check_outputs(program)
    pinned = pin(path.name, declared, shapes)
    digest = content_hash([path], pinned)
    runnable = path.resolve()
    if any(entry.dimensions != pinned[entry.name] for entry in declared):
        runnable = work_file(digest, f"{path.stem}.pt2")
        program = _specialise(path, program, pinned, runnable)
    specs = tuple(TensorSpec(entry.name, pinned[entry.name], entry.dtype) for entry in declared)
    ranges: list[InputRange] = input_ranges(program, specs)
    outputs = map(str, program.graph_signature.user_outputs)
    names = tuple(name or f"output_{index}" for index, name in enumerate(outputs))
    parameters = sum(tensor.numel() for tensor in program.parameters())
    source = Source(path.stem, "pt2", runnable, specs, names, digest, parameters)
    return assemble(source, ranges, lambda: convert_program(program), options)


def keep_module(module: torch.nn.Module, example_inputs: Sequence[torch.Tensor], title: str) -> Path:
    """Export a torch module and keep the archive in the user's cache.

    Raises:
        ImportFailed: `torch.export` cannot capture the module.
    """
    with tempfile.TemporaryDirectory(prefix="edgetlm-export-") as directory:
        exported = Path(directory, f"{title}.pt2")
        export_module(module, example_inputs, exported)
        kept = work_file(content_hash([exported], {}), exported.name)
        partial = kept.with_name(f"partial-{kept.name}")
        partial.write_bytes(exported.read_bytes())
        partial.rename(kept)
    return kept


def export_module(
    module: torch.nn.Module, example_inputs: Sequence[torch.Tensor], path: Path, title: str = ""
) -> None:
    """Write a torch module as a `torch.export` archive.

    Args:
        module: to be captured.
        example_inputs: that it is captured with.
        path: of the archive.
        title: of the model, for the message; the stem of the archive's name if "".

    Raises:
        ImportFailed: `torch.export` cannot capture the module.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own code
            torch.export.save(torch.export.export(module, tuple(example_inputs)), path)
    except Exception as error:  # torch.export raises a wide tree of its own
        name, reason = title or path.stem, next(iter(str(error).splitlines()), type(error).__name__)
        raise ImportFailed(
            f"{name}: torch.export cannot capture the module: {reason.rstrip('.')}: see that it runs on "
            "the example inputs, then what torch.export says of it; torch.onnx.export may make an ONNX file"
        ) from error


def _read(path: Path) -> torch.export.ExportedProgram:
    try:
        used = check_archive(str(path))
    except ValueError as error:
        raise ModelFileError(
            f"{path}: not an archive of torch.export that is safe to read: {error}: save the model again "
            "with torch.export.save, out of tensors and operators of torch only"
        ) from error
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), weights_only():
            warnings.simplefilter("ignore")
            load_libraries(used)
            return torch.export.load(path)
    except Exception as error:  # whatever torch meets in a damaged archive
        raise ModelFileError(
            f"{path}: not an archive of torch.export, or a truncated one: save the model again"
        ) from error


def _check_weights(path: Path, program: torch.export.ExportedProgram) -> None:
    for name, tensor in program.state_dict.items():
        parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        if parts.is_floating_point() and parts.numel() and bool(torch.isnan(parts.min())):
            raise ModelFileError(f"{path}: weight {name!r} holds NaN: the model cannot give useful outputs")


def _declared(program: torch.export.ExportedProgram) -> list[DeclaredInput]:
    """User inputs that are tensors, in order."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    declared = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT or not isinstance(spec.arg, TensorArgument):
            continue
        value = placeholders[spec.arg.name].meta["val"]
        if value.is_complex():
            raise ImportFailed(f"input {spec.arg.name!r} has complex numbers: give both parts as a tensor")
        sizes = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
        declared.append(DeclaredInput(spec.arg.name, sizes, str(value.dtype).removeprefix("torch.")))
    return declared


def _check_outputs(program: torch.export.ExportedProgram) -> None:
    """Refuse complex outputs before the program runs: they cannot leave it."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for name in program.graph_signature.user_outputs:
        value = values.get(str(name))
        if isinstance(value, torch.Tensor) and value.is_complex():
            raise ImportFailed(f"output {name!r} has complex numbers: return both parts as a tensor")


def _specialise(
    path: Path, program: torch.export.ExportedProgram, shapes: Mapping[str, tuple[int, ...]], target: Path
) -> torch.export.ExportedProgram:
    """The program exported again with numbers for its open dimensions, and kept in `target`."""
    placeholders = {node.name: node.meta["val"] for node in program.graph.nodes if node.name in shapes}
    flat = [
        torch.ones(shapes[spec.arg.name], dtype=placeholders[spec.arg.name].dtype)
        if spec.arg.name in shapes
        else spec.arg.value
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    arguments, keywords = torch.utils._pytree.tree_unflatten(flat, program.call_spec.in_spec)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            static = torch.export.export(program.module(), arguments, keywords)
    except Exception as error:  # guards of the export, or an operator that the sizes do not fit
        text = ", ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ShapeError(f"{path.name}: the model does not accept --shape {text}: {reason}") from error
    partial = target.with_name(f"partial-{target.name}")
    torch.export.save(static, partial)
    partial.rename(target)
    return static
