"""`sdk devices` and `sdk targets`: where a model can run."""

from __future__ import annotations

import typer

from sdk.cli.options import Verbose


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.add_typer(_DEVICES)
    app.command()(targets)


_DEVICES = typer.Typer(name="devices", help="Devices that this host knows.", no_args_is_help=True)


@_DEVICES.command("list")
def list_devices(verbose: Verbose = False) -> None:
    """List the devices and what they are."""
    from sdk import inventory
    from sdk.cli import printing

    printing.print_devices(inventory.devices())


def targets(verbose: Verbose = False) -> None:
    """List what can be compiled for."""
    from sdk import inventory
    from sdk.cli import printing

    printing.print_targets(inventory.targets())
