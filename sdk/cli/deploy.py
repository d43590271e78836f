"""`sdk deploy`: a model file in, a verified and measured bundle running on the device."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from sdk.cli.options import (
    Backend,
    Budget,
    DeviceName,
    JsonFile,
    Lengths,
    Records,
    Seed,
    Shapes,
    Threads,
    Train,
    Trials,
    Verbose,
    parse_lengths,
    parse_seconds,
    parse_shapes,
)


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(deploy)


def command_line() -> str:
    """The command as the user typed it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def deploy(
    model: Annotated[Path, typer.Argument(help="ONNX, .pt2 or TFLite file.")],
    device: DeviceName = "local",
    backend: Backend = "auto",
    objective: Annotated[str, typer.Option(help="latency or energy.")] = "latency",
    trials: Trials = 0,
    budget: Budget = "",
    train: Train = True,
    records: Records = "",
    threads: Threads = 0,
    shape: Shapes = None,
    lengths: Lengths = "",
    seed: Seed = 0,
    name: Annotated[str, typer.Option(help="Name on the device; the file's name if not given.")] = "",
    json_file: JsonFile = None,
    report: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="Directory or .zip of the bundle.")] = None,
    verbose: Verbose = False,
) -> None:
    """Compile a model for a device, verify and measure it there, install and activate it."""
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.console import ConsoleProgress
    from sdk.report import figures

    with ConsoleProgress() as progress:
        result = api.deploy(
            model,
            device=device,
            backend=backend,
            objective=objective,
            trials=trials,
            budget_s=parse_seconds(budget),
            train=train,
            records=records,
            threads=threads,
            shapes=parse_shapes(shape),
            lengths=parse_lengths(lengths),
            seed=seed,
            name=name,
            bundle=bundle,
            report=report,
            command=command_line(),
            progress=progress,
        )
    if json_file is not None:
        printing.write_json(json_file, figures.deploy_json(result.result))
    printing.print_deployment(result)
