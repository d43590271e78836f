"""`sdk compile`: a bundle without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from host.options import CompileOptions
from sdk.cli import completion
from sdk.cli.help import add_command
from sdk.cli.options import MODEL_HELP, Verbose
from sdk.cli.settings import takes_settings


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(
        app, compile_model, "sdk compile model.onnx -o out.zip --target raspberry_pi_5", "compile", True
    )


@takes_settings("compile", CompileOptions)
def compile_model(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory or .zip of the bundle.")],
    target: Annotated[
        str,
        typer.Option(help="What to compile for; sdk targets lists them.", autocompletion=completion.targets),
    ] = "local",
    *,
    verbose: Verbose = False,
    **settings: Any,
) -> None:
    """Compile a model to a bundle; nothing is verified or measured."""
    from sdk import api
    from sdk.cli.console import print_line
    from sdk.cli.terminal import ConsoleProgress

    options = CompileOptions(**settings)
    with ConsoleProgress() as progress:
        manifest = api.compile(model, options, target=target, output=output, progress=progress)
    print_line(
        f"bundle   {output} ({manifest.backend}, {len(manifest.kernels)} kernels, not verified on a device)"
    )
