"""`sdk devices` and `sdk targets`: where a model can run."""

from __future__ import annotations

from typing import Annotated

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


@_DEVICES.command("calibrate")
def calibrate_device(
    name: Annotated[str, typer.Argument(help="Name of the device; sdk devices list shows them.")],
    verbose: Verbose = False,
) -> None:
    """Measure rates and memory levels of a device, for the programs made for it from now on."""
    from sdk import inventory
    from sdk.cli import printing
    from sdk.cli.console import ConsoleProgress

    with ConsoleProgress() as progress:
        progress.stage("calibrate")
        calibration, declared, path = inventory.calibrate(name, progress.advance)
    printing.print_calibration(calibration, declared, path)


def targets(verbose: Verbose = False) -> None:
    """List what can be compiled for."""
    from sdk import inventory
    from sdk.cli import printing

    printing.print_targets(inventory.targets())
