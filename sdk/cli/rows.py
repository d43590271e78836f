"""Lists: a table for people, or its rows for programs as JSON, CSV or Markdown."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from host.errors import UserError
from sdk.cli.console import print_line, print_text
from sdk.cli.options import State
from sdk.text import visible_line

if TYPE_CHECKING:
    from host.table import Table

FORMS = ("table", "json", "csv", "md")


def _known_form(context: typer.Context, option: typer.CallbackParam, form: str) -> str:
    """Refuse an unknown form as the command line is read, before any work."""
    state = context.find_root().obj
    if form not in FORMS:
        flag = state.typed(option.opts) if isinstance(state, State) else option.opts[-1]
        raise UserError(f"{flag} {form}: use {', '.join(FORMS)}")
    if isinstance(state, State):
        state.for_programs = form != "table"
    return form


def _form(*flags: str) -> Any:
    return typer.Option(
        *flags,
        metavar="|".join(FORMS),
        help="How the rows are written.",
        callback=_known_form,
        autocompletion=lambda: list(FORMS),
    )


Form = Annotated[str, _form("-o", "--format")]
# Of a command whose -o is a file.
LongForm = Annotated[str, _form("--format")]


def write_list(
    form: str, table: Callable[[], None], names: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Write a list in the form that was asked for.

    Args:
        form: one of `FORMS`.
        table: prints it for people.
        names: of the columns for programs.
        rows: a value for each column; None where there is none.
    """
    if form == "table":
        table()
        return
    listed = list(rows)
    if form == "json":
        # In ASCII: no character of it does anything to a terminal, and no line is cut.
        sys.stdout.write(json.dumps([dict(zip(names, row, strict=True)) for row in listed], indent=1) + "\n")
        return
    texts = [["" if value is None else visible_line(value) for value in row] for row in listed]
    if form == "csv":
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([names, *texts])
        print_text(lines.getvalue().rstrip("\n"))
        return
    # For people, who need no more digits than a page shows.
    shown = [
        [f"{value:.6g}" if isinstance(value, float) else text for value, text in zip(row, line, strict=True)]
        for row, line in zip(listed, texts, strict=True)
    ]
    for cells in (names, ["---"] * len(names), *shown):
        print_line("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")


def write_table(form: str, table: Callable[[], None], rows: Table) -> None:
    """Write a table of a result in the form that was asked for; see `write_list`."""
    write_list(form, table, rows.columns, rows.rows)
