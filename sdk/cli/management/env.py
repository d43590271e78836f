"""`sdk env`: what is installed, what was found on this machine, and why something is missing."""

from __future__ import annotations

import typer

from sdk.cli.help import add_command
from sdk.cli.options import Verbose
from sdk.cli.rows import Form, write_list


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    add_command(app, env, "sdk env")


def env(form: Form = "table", verbose: Verbose = False) -> None:
    """Show versions, engines, sensors and devices, and the reason for whatever is missing."""
    from sdk.cli import printing
    from sdk.management import inventory

    found = inventory.environment()
    rows = [(section, name, text) for section, entries in found.items() for name, text in entries.items()]
    write_list(form, lambda: printing.print_env(found), ("section", "name", "value"), rows)
