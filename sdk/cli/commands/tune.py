"""`sdk tune`: measure programs of a model's kernels on a device and learn from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from host.options import DeployOptions
from sdk.cli.help import add_command
from sdk.cli.options import MODEL_HELP, JsonFile, ReportFile, Verbose
from sdk.cli.settings import takes_settings


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, tune, "sdk tune model.onnx --device pi5 --budget 10m", takes_project=True)


@takes_settings("tune", DeployOptions)
def tune(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    *,
    json_file: JsonFile = None,
    report: ReportFile = None,
    verbose: Verbose = False,
    **settings: Any,
) -> None:
    """Measure programs of a model's kernels on a device; deployments to come use the best ones.

    Ends after --trials measurements, after --budget of time, or when little more is to be gained.
    Interrupted, the same command goes on where it was.
    """
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.terminal import ConsoleProgress
    from sdk.report import figures

    options = DeployOptions(**settings)
    with ConsoleProgress() as progress:
        result = api.tune(model, options, report=report, progress=progress)
    if json_file is not None:
        printing.write_json(json_file, figures.tune_json(result))
    printing.print_tuned(result)
