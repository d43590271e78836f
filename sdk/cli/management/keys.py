"""`sdk keys`: this host's key, and whose bundles a device runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sdk.cli.help import add_command, new_group
from sdk.cli.options import DeviceName, Verbose
from sdk.cli.rows import Form, write_list

if TYPE_CHECKING:
    from device_agent.contract.trust import TrustedKeys

_COLUMNS = ("state", "identity", "name", "since", "own")


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = new_group("keys", "Whose bundles a device runs.")
    add_command(group, list_keys, "sdk keys list --device pi5", "list")
    add_command(group, show, "sdk keys show")
    add_command(group, trust, "sdk keys trust KEY --name laptop --device pi5")
    add_command(group, revoke, "sdk keys revoke laptop --device pi5")
    app.add_typer(group)


def list_keys(device: DeviceName = "local", form: Form = "table", verbose: Verbose = False) -> None:
    """List the keys that a device trusts, and what it refuses."""
    from sdk.management import keys

    rows = _rows(keys.listed(device), keys.own().public)
    write_list(form, lambda: _print_table(device, rows), _COLUMNS, rows)


def _rows(found: TrustedKeys, own: str) -> list[tuple[str, str, str, str, bool]]:
    trusted = [("trusted", key.key, key.name, key.since, key.key == own) for key in found.keys]
    revoked = [("revoked", one.identity, one.name, one.since, one.identity == own) for one in found.revoked]
    return trusted + revoked


def _print_table(device: str, rows: Sequence[tuple[str, str, str, str, bool]]) -> None:
    from sdk.cli.console import print_line

    if not any(state == "trusted" for state, *_ in rows):
        print_line(f"{device} trusts no key")
    for state, identity, name, since, own in rows:
        when = "since" if state == "trusted" else "on"
        print_line(f"{state}  {identity}  {name}, {when} {since}{' (this host)' * own}")


def show(verbose: Verbose = False) -> None:
    """Show this host's public key, for `sdk keys trust` on another host."""
    from sdk.cli.console import print_line
    from sdk.management import keys

    own = keys.own()
    print_line(f"{own.public}  {own.name}")


def trust(
    key: Annotated[str, typer.Argument(help="Public key of a host, as sdk keys show prints it there.")],
    name: Annotated[str, typer.Option("--name", help="What the device is to call it.")],
    device: DeviceName = "local",
    verbose: Verbose = False,
) -> None:
    """Have a device run the bundles that another host signs."""
    from sdk.cli.console import print_line
    from sdk.management import keys

    keys.trust(key, name, device)
    print_line(f"{device} runs what {name} signs")


def revoke(
    identity: Annotated[
        str, typer.Argument(help="Name of a key, its first digits, or the version of a bundle.")
    ],
    device: DeviceName = "local",
    verbose: Verbose = False,
) -> None:
    """Have a device refuse a host's bundles, or one version of a bundle, from now on."""
    from sdk.cli.console import print_line
    from sdk.management import keys

    print_line(f"{device} refuses {keys.revoke(identity, device)} from now on")
