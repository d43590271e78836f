"""Write models of the zoo to files: `python -m research.models.export NAME... -o DIR [--format onnx,pt2]`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import onnx
import torch
from torch import nn

from research.models.zoo import ZOO, make

OPSET = 18


def export_onnx_model(
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    input_names: Sequence[str],
    output_names: Sequence[str],
    path: Path,
) -> Path:
    """Write one ONNX file, weights inside, without traces of the machine that wrote it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own deprecations are not ours to fix
        program = torch.onnx.export(
            module,
            inputs,
            input_names=list(input_names),
            output_names=list(output_names),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _strip(model)
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


def _strip(model: onnx.ModelProto) -> None:
    """Remove stack traces and such, which make equal models differ."""
    del model.metadata_props[:]
    graph = model.graph
    del graph.metadata_props[:]
    for part in [*graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer]:
        del part.metadata_props[:]
        part.ClearField("doc_string")
    for function in model.functions:
        del function.metadata_props[:]
        for node in function.node:
            del node.metadata_props[:]
            node.ClearField("doc_string")


def export_pt2(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> Path:
    """Write one `torch.export` archive."""
    torch.export.save(torch.export.export(module, inputs), path)
    return path


def export(name: str, directory: Path, format_name: str, seed: int = 0) -> Path:
    """Write model `name` in one format; a file that exists already is kept.

    Args:
        name: a key of `ZOO`.
        directory: made if it does not exist.
        format_name: "onnx", "pt2" or "tflite".
        seed: of the weights.

    Returns:
        The file.

    Raises:
        KeyError: no such model.
        ValueError: no such format.
    """
    path = directory / f"{name}.{format_name}"
    if path.is_file():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / f"{name}.partial.{format_name}"
    if format_name == "tflite":
        from research.models.tflite_export import export_tflite

        return export_tflite(name, path, seed).rename(path)
    module, inputs = make(name, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own deprecations are not ours to fix
        if format_name == "onnx":
            entry = ZOO[name]
            export_onnx_model(module, inputs, entry.input_names, entry.output_names, partial)
        elif format_name == "pt2":
            export_pt2(module, inputs, partial)
        else:
            raise ValueError(f"unknown format {format_name!r}: use onnx, pt2 or tflite")
    return partial.rename(path)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m research.models.export", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*ZOO, "all"], metavar="NAME", help=", ".join(ZOO))
    parser.add_argument("-o", "--output", type=Path, default=Path("models"), help="directory")
    parser.add_argument("--format", default="onnx", help="comma-separated: onnx, pt2, tflite")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    names = list(ZOO) if "all" in options.names else options.names
    for name in names:
        for format_name in options.format.split(","):
            path = export(name, options.output, format_name, options.seed)
            sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
