"""`sdk deploy`: a model file in, a verified and measured bundle running on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from host.errors import UserError
from host.options import DeployOptions
from sdk.cli.help import add_command
from sdk.cli.options import GATE_NOT_MET, MODEL_HELP, JsonFile, ReportFile, TraceFile, Verbose
from sdk.cli.settings import takes_settings


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    examples = "sdk deploy model.onnx --device pi5 --shape batch=1\nsdk deploy"
    add_command(app, deploy, examples, takes_project=True)


@takes_settings("deploy", DeployOptions)
def deploy(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    *,
    json_file: JsonFile = None,
    trace: TraceFile = None,
    report: ReportFile = None,
    verbose: Verbose = False,
    **settings: Any,
) -> None:
    """Compile a model for a device, verify and measure it there, install and activate it.

    With several devices it is compiled once for each kind of board, verified and installed on each; one
    that fails changes nothing for the others, and the exit code is 1.

    What is not typed is taken from edgetlm.toml of this folder or of one above: keys are the names of the
    options, and model. A gate that is not met leaves the device as it was; the exit code is then 3.
    """
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.commands.several_devices import deploy_to_several
    from sdk.cli.terminal import ConsoleProgress
    from sdk.report import figures
    from sdk.report.trace import trace_json

    options = DeployOptions(**settings)
    if api.names_several(options.device):
        if trace is not None:
            raise UserError("--trace is of one device: name one, or leave --trace out")
        deploy_to_several(model, options, report, json_file)
        return
    with ConsoleProgress() as progress:
        result = api.deploy(model, options, report=report, progress=progress)
    if trace is not None:
        printing.write_json(trace, trace_json(result.result))
    if json_file is not None:
        printing.write_json(json_file, figures.deploy_json(result.result))
    printing.print_deployment(result)
    if printing.print_failed_gates([result.result]):
        raise typer.Exit(GATE_NOT_MET)
