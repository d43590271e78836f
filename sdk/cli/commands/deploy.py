"""`sdk deploy`: a model file in, a verified and measured bundle running on the device."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from host.options import DeployOptions
from sdk.cli.help import add_command
from sdk.cli.options import JsonFile, Verbose
from sdk.cli.settings import takes_settings

_PASSWORD = re.compile(r"(://[^:/@\s]*):\S*@")
_SECRET_OPTION = re.compile(r"(?i)([?&][^=&]*(?:passw|pwd|token|secret)[^=&]*=)[^&\s]*")


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, deploy, "sdk deploy model.onnx --device pi5 --shape batch=1")


def command_line() -> str:
    """The command as the user typed it, without the secrets of a URL: records and reports keep it."""
    words = [_SECRET_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", word)) for word in sys.argv[1:]]
    return shlex.join([Path(sys.argv[0]).name, *words])


@takes_settings("deploy", DeployOptions)
def deploy(
    model: Annotated[Path, typer.Argument(help="ONNX, .pt2 or TFLite file.")],
    *,
    json_file: JsonFile = None,
    report: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None,
    verbose: Verbose = False,
    **settings: Any,
) -> None:
    """Compile a model for a device, verify and measure it there, install and activate it.

    With several devices it is compiled once for each kind of board, verified and installed on each; one
    that fails changes nothing for the others, and the exit code is 1.
    """
    from sdk import api
    from sdk.cli import printing
    from sdk.cli.commands.several_devices import deploy_to_several
    from sdk.cli.console import ConsoleProgress
    from sdk.report import figures

    options = DeployOptions(**settings, command=command_line())
    if api.names_several(options.device):
        deploy_to_several(model, options, report, json_file)
        return
    with ConsoleProgress() as progress:
        result = api.deploy(model, options, report=report, progress=progress)
    if json_file is not None:
        printing.write_json(json_file, figures.deploy_json(result.result))
    printing.print_deployment(result)
