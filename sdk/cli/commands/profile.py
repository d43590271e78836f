"""`sdk profile`: measure a model or a bundle on a device, beside its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sdk.cli.help import add_command
from sdk.cli.options import (
    DeviceName,
    JsonFile,
    Lengths,
    Seed,
    Shapes,
    Threads,
    Trust,
    Verbose,
    parse_lengths,
    parse_shapes,
)


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, profile, "sdk profile model.onnx --device pi5 --json figures.json")


def profile(
    model: Annotated[Path, typer.Argument(help="Model file or bundle.")],
    device: DeviceName = "local",
    threads: Threads = 0,
    shape: Shapes = None,
    lengths: Lengths = "",
    seed: Seed = 0,
    trust: Trust = "signed",
    json_file: JsonFile = None,
    verbose: Verbose = False,
) -> None:
    """Measure a model or bundle and its peers; nothing is installed."""
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.console import ConsoleProgress
    from sdk.report import figures

    with ConsoleProgress() as progress:
        result = api.profile(
            model,
            device=device,
            threads=threads,
            shapes=parse_shapes(shape),
            lengths=parse_lengths(lengths),
            seed=seed,
            trust=trust,
            progress=progress,
        )
    if json_file is not None:
        printing.write_json(json_file, figures.deploy_json(result))
    printing.print_profile(result)
