"""`sdk explain`: how a kernel was found, and where its time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sdk.cli import completion
from sdk.cli.help import add_command
from sdk.cli.options import OutputFile, Records, Verbose
from sdk.cli.rows import LongForm, write_table


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, explain, "sdk explain edgetlm-out/mobilenet/bundle --task conv2d_3")


def explain(
    bundle: Annotated[
        Path, typer.Argument(help="Bundle directory or zip.", autocompletion=completion.bundles)
    ],
    task: Annotated[
        str,
        typer.Option(
            "--task",
            help="Name of a kernel, or a part that fits only one; may be left out where there is only one.",
            autocompletion=completion.kernels,
        ),
    ] = "",
    output: OutputFile = None,
    records: Records = "",
    form: LongForm = "table",
    verbose: Verbose = False,
) -> None:
    """Draw the walk that found a kernel, its roofline, and what the board has taught about the model."""
    from sdk import api
    from sdk.cli import printing

    found, path = api.explain(bundle, task, output, records)
    write_table(form, lambda: printing.print_explanation(found, path), found.tables()[0])
