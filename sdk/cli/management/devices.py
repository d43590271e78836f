"""`sdk devices` and `sdk targets`: where a model can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sdk.cli import completion
from sdk.cli.help import add_command, new_group
from sdk.cli.management.emulate import emulate
from sdk.cli.options import Records, Verbose
from sdk.cli.rows import Form, write_list

if TYPE_CHECKING:
    from host.transport.doctor import Finding
    from host.transport.installing import Installed


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = new_group("devices", "Devices that this host knows.")
    add_command(group, list_devices, "sdk devices list", "list")
    add_command(group, add_device, "sdk devices add pi5 --host user@192.168.1.20", "add")
    add_command(group, install_agent, "sdk devices install-agent pi5", "install-agent")
    add_command(group, doctor, "sdk devices doctor pi5")
    add_command(group, remove_device, "sdk devices remove pi5", "remove")
    add_command(group, calibrate_device, "sdk devices calibrate pi5", "calibrate")
    add_command(group, emulate, "sdk devices emulate aarch64 --name practice")
    app.add_typer(group)
    add_command(app, targets, "sdk targets")


_Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the device; sdk devices list shows them.",
        autocompletion=completion.registered_devices,
    ),
]
_System = Annotated[
    bool,
    typer.Option("--system", help="As a hardened service of the whole system, through sudo on the board."),
]


def list_devices(form: Form = "table", verbose: Verbose = False) -> None:
    """List the devices and what they are."""
    from sdk.cli import printing
    from sdk.management import inventory

    found = inventory.devices()
    write_list(form, lambda: printing.print_devices(found), ("name", "description"), found)


def add_device(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name to give it.")],
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="USER@ADDRESS[:PORT]", help="Its SSH server, or an alias of ~/.ssh/config."
        ),
    ],
    board: Annotated[
        str,
        typer.Option(
            "--board", help="Kind of board; by default what its machine says. sdk targets lists them."
        ),
    ] = "",
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Word for a group of devices. May repeat."),
    ] = None,
    identity: Annotated[
        str, typer.Option("--identity", metavar="FILE", help="Private key; by default those of ~/.ssh.")
    ] = "",
    known_hosts: Annotated[
        str,
        typer.Option(
            "--known-hosts", metavar="FILE", help="Host keys to go by for this board; by default ~/.ssh's."
        ),
    ] = "",
    no_install: Annotated[bool, typer.Option("--no-install", help="Only register it.")] = False,
    system: _System = False,
    verbose: Verbose = False,
) -> None:
    """Add a board that is reached over SSH: install the agent on it and recognise it."""
    from sdk.cli.console import print_line
    from sdk.cli.terminal import ConsoleProgress
    from sdk.management import administration

    request = administration.AddRequest(
        name,
        host,
        board,
        tuple(tags or ()),
        identity,
        known_hosts,
        install=not no_install,
        system=system,
    )
    with ConsoleProgress() as progress:
        entry, installed = administration.add(request, progress)
    if installed is None:
        print_line(f"{name} is registered; next: sdk devices install-agent {name}")
        return
    _print_installed(installed)
    print_line(f"next: sdk deploy MODEL --device {entry.name}")


def install_agent(
    name: _Name,
    system: _System = False,
    power_modes: Annotated[
        bool, typer.Option("--power-modes", help="As with --system, and it may change power modes.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Install the agent on a board, or bring it up to date; what is there already is not sent again."""
    from sdk.cli.terminal import ConsoleProgress
    from sdk.management import administration

    with ConsoleProgress() as progress:
        installed = administration.install(name, progress, system, power_modes)
    _print_installed(installed)


def doctor(name: _Name, verbose: Verbose = False) -> None:
    """Look at a device: what is missing and what to type. Exit code 1 if something is to be done."""
    from sdk.management import administration

    if not administration.doctor(name, _print_finding):
        raise typer.Exit(1)


def remove_device(
    name: _Name,
    purge: Annotated[bool, typer.Option("--purge", help="Remove the bundles installed there too.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Leave the board as it is.")] = False,
    verbose: Verbose = False,
) -> None:
    """Remove the agent from a board, and the board from the devices."""
    from sdk.cli.console import print_line
    from sdk.management import administration

    for path in administration.remove(name, purge, forget):
        print_line(f"removed {path} on {name}")
    print_line(f"{name} is no longer registered")


def calibrate_device(name: _Name, records: Records = "", verbose: Verbose = False) -> None:
    """Measure rates and memory levels of a device, for the programs made for it from now on."""
    from sdk.cli import printing
    from sdk.cli.terminal import ConsoleProgress
    from sdk.management import inventory

    with ConsoleProgress() as progress:
        progress.stage("calibrate")
        calibration, declared, path = inventory.calibrate(name, progress.advance, records)
    printing.print_calibration(calibration, declared, path)


def targets(form: Form = "table", verbose: Verbose = False) -> None:
    """List what can be compiled for."""
    from sdk.cli import printing
    from sdk.management import inventory

    found = inventory.targets()
    rows = [(name, lines[0], lines[1] if len(lines) > 1 else None) for name, lines in found.items()]
    write_list(form, lambda: printing.print_targets(found), ("name", "processor", "power"), rows)


def _print_installed(installed: Installed) -> None:
    from sdk.cli.console import print_line

    machine, board, unit = installed.machine, installed.board, installed.unit
    sent = (
        f"{installed.sent_bytes / 1e6:.1f} MB sent"
        if installed.sent_bytes
        else "everything was there already"
    )
    memory = f"{machine.memory_bytes / 2**30:.1f} GiB"
    print_line(f"board     {board.name}: {board.title}, {machine.cores} cores, {memory}")
    print_line(f"agent     installed, {sent}")
    if unit["system"]:
        service = "a unit of the system starts it"
    elif unit["enabled"]:
        service = "a unit of the user starts it" + ("" if unit["linger"] else ", while somebody is logged in")
    else:
        service = f"whoever connects starts it ({unit['reason']})"
    print_line(f"service   {service}")


def _print_finding(finding: Finding) -> None:
    from sdk.cli.console import print_line

    mark = "ok" if finding.good else "--"
    print_line(f"{mark} {finding.topic:<12} {finding.text}")
    if finding.advice:
        print_line(f"   {'':<12} {finding.advice}")
