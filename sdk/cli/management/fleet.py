"""`sdk fleet`: the boards that hosts share by their records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sdk.cli.help import add_command, new_group
from sdk.cli.options import Records, Verbose
from sdk.cli.rows import Form, write_list

if TYPE_CHECKING:
    from host.leases import BoardStatus

_COLUMNS = (
    *("name", "owner", "job", "health", "since_s", "left_s", "heartbeat_s", "waiting", "queue", "board"),
)
_SECONDS = ("since_s", "left_s", "heartbeat_s")
# Columns are not cut where no terminal sets a width.
_WIDTH = 200


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = new_group("fleet", "Boards that hosts share by their records.")
    add_command(group, status, "sdk fleet status --records postgresql+psycopg://me@host/records")
    add_command(group, release, "sdk fleet release pi5 --force")
    app.add_typer(group)


def status(records: Records = "", form: Form = "table", verbose: Verbose = False) -> None:
    """Show who has which board, until when, and who waits for it."""
    from sdk.management import fleet

    rows = [_row(one) for one in fleet.status(records)]
    write_list(form, lambda: _print_table(rows), _COLUMNS, rows)


def release(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="Name of the board, as status shows it.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Take it from its holder, whose command fails; it is kept who did."),
    ] = False,
    records: Records = "",
    verbose: Verbose = False,
) -> None:
    """Take a board from whoever has it. A holder that is gone loses it by itself within a minute."""
    from host.errors import UserError
    from sdk.cli.console import print_line
    from sdk.management import fleet

    if not force:
        raise UserError(
            f"sdk fleet release {board} ends the work of its holder: ask there, and add --force to do it"
        )
    was = fleet.release(records, board)
    print_line(f"{was.name} is released: {was.owner} had it for {was.job or 'a job'}")


def _row(one: BoardStatus) -> tuple[object, ...]:
    """A value for each column."""
    queue = ", ".join(f"{other.owner} ({other.job})" if other.job else other.owner for other in one.waiting)
    times = (round(one.since_s, 1), round(one.left_s, 1), round(one.heartbeat_s, 1))
    return (
        *(one.name, one.owner or None, one.job or None, one.health),
        *times,
        *(len(one.waiting), queue or None, one.board),
    )


def _print_table(rows: Sequence[Sequence[object]]) -> None:
    from rich import box
    from rich.table import Table

    from sdk.cli.console import print_line
    from sdk.cli.terminal import cell, table_console

    if not rows:
        print_line("no board was leased yet")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in _COLUMNS:
        numeric = title in (*_SECONDS, "waiting")
        table.add_column(title.removesuffix("_s"), justify="right" if numeric else "left")
    for row in rows:
        texts = ["" if value is None else value for value in row]
        for title in _SECONDS:
            place = _COLUMNS.index(title)
            texts[place] = f"{row[place]:.0f} s"
        table.add_row(*map(cell, texts))
    table_console(_WIDTH).print(table)
