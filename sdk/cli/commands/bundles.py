"""`sdk bundles` and `sdk rollback`: what is installed on a device."""

from __future__ import annotations

from typing import Annotated

import typer

from sdk.cli import completion
from sdk.cli.help import add_command
from sdk.cli.options import DeviceName, Verbose
from sdk.cli.rows import Form, write_list


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, bundles, "sdk bundles --device pi5")
    add_command(app, rollback, "sdk rollback mobilenet --device pi5")


def bundles(device: DeviceName = "local", form: Form = "table", verbose: Verbose = False) -> None:
    """List the models installed on a device."""
    from sdk import api
    from sdk.cli import printing

    with api.connect(device) as board:
        found = board.bundles()
    rows = [
        (one["name"], one["version"], one["backend"], one["active"], printing.length_text(one))
        for one in found
    ]
    names = ("name", "version", "backend", "active", "lengths")
    write_list(form, lambda: printing.print_bundles(found), names, rows)


def rollback(
    model: Annotated[
        str,
        typer.Argument(help="Name of the model on the device.", autocompletion=completion.installed_models),
    ],
    device: DeviceName = "local",
    verbose: Verbose = False,
) -> None:
    """Activate the version of a model that was active before."""
    from sdk import api
    from sdk.cli.console import print_line

    with api.connect(device) as board:
        version = board.rollback(model)
    print_line(f"{model} on {device} runs version {str(version)[:12]} again")
