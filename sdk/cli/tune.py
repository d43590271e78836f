"""`sdk tune`: measure programs of a model's kernels on a device and learn from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sdk.cli.deploy import command_line
from sdk.cli.options import (
    Budget,
    DeviceNames,
    JsonFile,
    Objective,
    PowerCap,
    PowerModes,
    Reconnect,
    Records,
    Seed,
    Shapes,
    Threads,
    Train,
    Verbose,
    Wait,
    parse_names,
    parse_seconds,
    parse_shapes,
)


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(tune)


def tune(
    model: Annotated[Path, typer.Argument(help="ONNX, .pt2 or TFLite file.")],
    device: DeviceNames = "local",
    objective: Objective = "latency",
    power_cap: PowerCap = None,
    power_modes: PowerModes = "",
    trials: Annotated[int, typer.Option(help="Kernels to measure in all.")] = 0,
    budget: Budget = "",
    train: Train = True,
    wait: Wait = "",
    reconnect: Reconnect = "5m",
    records: Records = "",
    threads: Threads = 0,
    shape: Shapes = None,
    seed: Seed = 0,
    name: Annotated[str, typer.Option(help="Name of the model; the file's name if not given.")] = "",
    json_file: JsonFile = None,
    report: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None,
    verbose: Verbose = False,
) -> None:
    """Measure programs of a model's kernels on a device; deployments to come use the best ones.

    Ends after --trials measurements, after --budget of time, or when little more is to be gained.
    Interrupted, the same command goes on where it was.
    """
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.console import ConsoleProgress
    from sdk.report import figures

    with ConsoleProgress() as progress:
        result = api.tune(
            model,
            device=device,
            objective=objective,
            power_cap_w=power_cap,
            power_modes=parse_names(power_modes),
            trials=trials,
            budget_s=parse_seconds(budget),
            train=train,
            wait_s=parse_seconds(wait, "--wait"),
            reconnect_s=parse_seconds(reconnect, "--reconnect"),
            records=records,
            threads=threads,
            shapes=parse_shapes(shape),
            seed=seed,
            name=name,
            report=report,
            command=command_line(),
            progress=progress,
        )
    if json_file is not None:
        printing.write_json(json_file, figures.tune_json(result))
    printing.print_tuned(result)
