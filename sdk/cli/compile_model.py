"""`sdk compile`: a bundle without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sdk.cli.options import Backend, Dtype, Processor, Seed, Shapes, Threads, Verbose, parse_shapes


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("compile")(compile_model)


def compile_model(
    model: Annotated[Path, typer.Argument(help="ONNX, .pt2 or TFLite file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory or .zip of the bundle.")],
    target: Annotated[str, typer.Option(help="What to compile for; sdk targets lists them.")] = "local",
    backend: Backend = "auto",
    processor: Processor = "auto",
    dtype: Dtype = "fp32",
    cuda: Annotated[
        str, typer.Option(metavar="11", help="CUDA version of the board; the usual JetPack's if not given.")
    ] = "",
    threads: Threads = 0,
    shape: Shapes = None,
    seed: Seed = 0,
    name: Annotated[str, typer.Option(help="Name on the device; the file's name if not given.")] = "",
    verbose: Verbose = False,
) -> None:
    """Compile a model to a bundle; nothing is verified or measured."""
    from sdk import api
    from sdk.cli.console import ConsoleProgress, print_line
    from sdk.cli.deploy import command_line

    with ConsoleProgress() as progress:
        manifest = api.compile(
            model,
            target=target,
            output=output,
            backend=backend,
            processor=processor,
            dtype=dtype,
            cuda=cuda,
            threads=threads,
            shapes=parse_shapes(shape),
            seed=seed,
            name=name,
            command=command_line(),
            progress=progress,
        )
    print_line(
        f"bundle   {output} ({manifest.backend}, {len(manifest.kernels)} kernels, not verified on a device)"
    )
