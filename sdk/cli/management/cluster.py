"""`sdk cluster`: the hosts of a Ray cluster that a project file describes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sdk.cli.help import add_command, new_group
from sdk.cli.options import Verbose
from sdk.cli.rows import Form, write_list

if TYPE_CHECKING:
    from host.cluster.hosts import HostState

_COLUMNS = ("host", "state", "ssh", "address", "cores", "boards", "reason")
File = Annotated[
    Path | None,
    typer.Option("--file", help="The file with the cluster; the edgetlm.toml of this folder if not given."),
]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = new_group("cluster", "Hosts that build programs and reach boards (docs/scale.md).")
    add_command(group, up, "sdk cluster up")
    add_command(group, status, "sdk cluster status")
    add_command(group, down, "sdk cluster down")
    app.add_typer(group)


def up(file: File = None, form: Form = "table", verbose: Verbose = False) -> None:
    """Start every host of the cluster that does not run."""
    from sdk.cli.console import print_line
    from sdk.management import cluster

    _show(cluster.up(file), form)
    if form == "table":
        print_line(f"use it with --engine ray://{cluster.head(file)}")


def status(file: File = None, form: Form = "table", verbose: Verbose = False) -> None:
    """Show which hosts run, and which boards they reach."""
    from sdk.management import cluster

    _show(cluster.status(file), form)


def down(file: File = None, form: Form = "table", verbose: Verbose = False) -> None:
    """End every host of the cluster, and what runs there."""
    from sdk.management import cluster

    _show(cluster.down(file), form)


def _show(states: Sequence[HostState], form: Form) -> None:
    """Print a line for each host.

    Raises:
        EdgeError: a host failed.
    """
    from host.errors import EdgeError

    rows = [
        (
            one.host.name,
            one.state,
            one.host.ssh or None,
            one.host.address,
            one.host.cores,
            ", ".join(one.host.boards) or None,
            one.reason or None,
        )
        for one in states
    ]
    write_list(form, lambda: _print_table(rows), _COLUMNS, rows)
    failed = [one for one in states if one.state == "failed"]
    if failed:
        names = ", ".join(one.host.name for one in failed)
        raise EdgeError(f"{names}: {failed[0].reason}; correct it, and give the same command again")


def _print_table(rows: Sequence[Sequence[object]]) -> None:
    from rich import box
    from rich.table import Table

    from sdk.cli.terminal import cell, table_console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in _COLUMNS:
        table.add_column(title)
    for row in rows:
        table.add_row(*map(cell, ["" if value is None else value for value in row]))
    table_console(200).print(table)
