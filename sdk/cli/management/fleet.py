"""`sdk fleet`: the boards that hosts share by their records."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sdk.cli.help import add_command, new_group
from sdk.cli.options import Records, Verbose
from sdk.cli.rows import Form, write_list

if TYPE_CHECKING:
    from rich.table import Table

    from host.leases import BoardStatus
    from host.leases.activity import BoardActivity

_COLUMNS = (
    *("name", "owner", "job", "health", "since_s", "left_s", "heartbeat_s", "waiting", "queue", "board"),
)
_TOP_COLUMNS = ("name", "owner", "job", "temperature_c", "waiting", "measured_s", "health", "board")
# Seconds between two looks of `top`.
_REFRESH_S = 2.0
_SECONDS = ("since_s", "left_s", "heartbeat_s")
# Columns are not cut where no terminal sets a width.
_WIDTH = 200


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = new_group("fleet", "Boards that hosts share by their records.")
    add_command(group, status, "sdk fleet status --records postgresql+psycopg://me@host/records")
    add_command(group, top, "sdk fleet top --records postgresql+psycopg://me@host/records")
    add_command(group, release, "sdk fleet release pi5 --force")
    add_command(group, metrics, "sdk fleet metrics --port 9466")
    app.add_typer(group)


def status(records: Records = "", form: Form = "table", verbose: Verbose = False) -> None:
    """Show who has which board, until when, and who waits for it."""
    from sdk.management import fleet

    rows = [_row(one) for one in fleet.status(records)]
    write_list(form, lambda: _print_table(rows), _COLUMNS, rows)


def top(
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    records: Records = "",
    form: Form = "table",
    verbose: Verbose = False,
) -> None:
    """Show the boards again and again: who has each, its temperature, who waits, when it last measured.

    Temperature and time are those of the last record of the board's epoch: no board is asked.
    """
    from sdk.management import fleet

    if once or form != "table":
        rows = [_activity_row(one) for one in fleet.activity(records)]
        write_list(form, lambda: _print_top(rows), _TOP_COLUMNS, rows)
        return
    from rich.live import Live

    from sdk.cli.terminal import table_console

    console = table_console(_WIDTH)
    if not console.is_terminal:
        from host.errors import UserError

        raise UserError("sdk fleet top draws on a terminal: add --once to write it here")
    with Live(console=console, auto_refresh=False) as live:
        while True:
            rows = [_activity_row(one) for one in fleet.activity(records)]
            live.update(_top_table(rows), refresh=True)
            time.sleep(_REFRESH_S)


def metrics(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for any.")
    ] = 9466,
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="ADDRESS", help="Address to listen on; this machine alone if not given."
        ),
    ] = "127.0.0.1",
    records: Records = "",
    verbose: Verbose = False,
) -> None:
    """Serve figures of all boards for Prometheus, until it is interrupted."""
    from device_agent.contract.metrics import PAGE
    from sdk.cli.console import print_line
    from sdk.management import fleet

    with fleet.metrics_server(records, listen, port) as server:
        print_line(f"http://{listen}:{server.port}{PAGE}")
        sys.stdout.flush()
        server.serve_forever()


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


def _activity_row(one: BoardActivity) -> tuple[object, ...]:
    """A value for each column of `top`."""
    status = one.status
    age_s = None if one.measured_at is None else round(max(0.0, time.time() - one.measured_at), 1)
    return (
        *(status.name, status.owner or None, status.job or None, one.temperature_c, len(status.waiting)),
        *(age_s, status.health, status.board),
    )


def _top_table(rows: Sequence[Sequence[object]]) -> Table:
    from rich import box
    from rich.table import Table

    from sdk.cli.terminal import cell

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in _TOP_COLUMNS[:-1]:
        numeric = title in ("temperature_c", "waiting", "measured_s")
        shown = {"temperature_c": "temp.", "measured_s": "last measured"}.get(title, title)
        table.add_column(shown, justify="right" if numeric else "left", no_wrap=title == "name")
    for name, owner, job, degrees, waiting, age_s, health, _ in rows:
        table.add_row(
            *(cell(name), cell(owner or ""), cell(job or "")),
            cell("" if degrees is None else f"{degrees:.0f} C"),
            *(cell(waiting), cell("" if age_s is None else _age(age_s))),
            cell(health, "" if health in ("free", "held") else "bold"),
        )
    return table


def _age(seconds: object) -> str:
    assert isinstance(seconds, float)
    for length_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length_s:
            return f"{seconds // length_s:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _print_top(rows: Sequence[Sequence[object]]) -> None:
    from sdk.cli.console import print_line
    from sdk.cli.terminal import table_console

    if not rows:
        print_line("no board was leased yet")
        return
    table_console(_WIDTH).print(_top_table(rows))


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
