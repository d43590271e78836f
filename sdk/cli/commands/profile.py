"""`sdk profile`: measure a model or a bundle on a device, beside its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from host.options import DeployOptions
from sdk.cli.help import add_command
from sdk.cli.options import JsonFile, TraceFile, Trust, Verbose
from sdk.cli.settings import takes_settings


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, profile, "sdk profile model.onnx --device pi5 --json figures.json", takes_project=True)


@takes_settings("profile", DeployOptions)
def profile(
    model: Annotated[Path, typer.Argument(help="Model file or bundle; edgetlm.toml may name it.")],
    *,
    trust: Trust = "signed",
    json_file: JsonFile = None,
    trace: TraceFile = None,
    verbose: Verbose = False,
    **settings: Any,
) -> None:
    """Measure a model or bundle and its peers; nothing is installed."""
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.terminal import ConsoleProgress
    from sdk.report import figures
    from sdk.report.trace import trace_json

    # Nothing is kept that could name it.
    settings.pop("command")
    with ConsoleProgress() as progress:
        result = api.profile(model, trust=trust, progress=progress, **settings)
    if trace is not None:
        printing.write_json(trace, trace_json(result))
    if json_file is not None:
        printing.write_json(json_file, figures.deploy_json(result))
    printing.print_profile(result)
