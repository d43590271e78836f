"""`sdk profile`: measure a model or a bundle on a device, beside its peers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from host.options import DeployOptions
from sdk.cli.forms import parse_names
from sdk.cli.help import add_command
from sdk.cli.options import JsonFile, TraceFile, Trust, Verbose
from sdk.cli.rows import Form, write_table
from sdk.cli.settings import takes_settings
from sdk.request import check_loadgen


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, profile, "sdk profile model.onnx --device pi5 --json figures.json", takes_project=True)


@takes_settings("profile", DeployOptions)
def profile(
    model: Annotated[Path, typer.Argument(help="Model file or bundle; edgetlm.toml may name it.")],
    *,
    trust: Trust = "signed",
    loadgen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SingleStream,Offline",
            help="Drive a bundle by MLPerf's LoadGen as well: latencies of queries from this host.",
        ),
    ] = None,
    loadgen_s: Annotated[
        float, typer.Option("--loadgen-seconds", help="Least duration of a scenario.")
    ] = 10.0,
    json_file: JsonFile = None,
    form: Form = "table",
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
    scenarios = parse_names(",".join(loadgen or ()))
    check_loadgen(model, scenarios, loadgen_s)
    # Rows for programs are alone on standard output.
    with ConsoleProgress(sys.stderr if form != "table" else None) as progress:
        result = api.profile(model, trust=trust, progress=progress, **settings)
    if trace is not None:
        printing.write_json(trace, trace_json(result))
    if json_file is not None:
        # What was measured is kept, whatever becomes of LoadGen.
        printing.write_json(json_file, figures.deploy_json(result))
    if scenarios:
        own = {key: settings[key] for key in ("device", "threads", "seed")}
        driven = api.loadgen(model, scenarios, seconds=loadgen_s, trust=trust, **own)
    else:
        driven = ()
    if json_file is not None and driven:
        printing.write_json(json_file, {**figures.deploy_json(result), **figures.loadgen_json(driven)})

    def show() -> None:
        printing.print_profile(result)
        printing.print_loadgen(driven)

    write_table(form, show, result.tables()[0])
