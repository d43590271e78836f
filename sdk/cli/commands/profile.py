"""`sdk profile`: measure a model or a bundle on a device, beside its peers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from host.options import DeployOptions
from sdk.cli.help import add_command
from sdk.cli.options import JsonFile, Trust, Verbose
from sdk.cli.rows import Form, write_table
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
    form: Form = "table",
    verbose: Verbose = False,
    **settings: Any,
) -> None:
    """Measure a model or bundle and its peers; nothing is installed."""
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.terminal import ConsoleProgress
    from sdk.report import figures

    # Nothing is kept that could name it.
    settings.pop("command")
    # Rows for programs are alone on standard output.
    with ConsoleProgress(sys.stderr if form != "table" else None) as progress:
        result = api.profile(model, trust=trust, progress=progress, **settings)
    if json_file is not None:
        printing.write_json(json_file, figures.deploy_json(result))
    write_table(form, lambda: printing.print_profile(result), result.tables()[0])
