"""Lists: a table for people, or its rows for programs as JSON, CSV or Markdown."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import typer

from host.errors import UserError
from sdk.cli.console import print_line, print_text
from sdk.text import visible_line

FORMS = ("table", "json", "csv", "md")


def _known_form(form: str) -> str:
    """Refuse an unknown form as the command line is read, before any work."""
    if form not in FORMS:
        raise UserError(f"--format {form}: use {', '.join(FORMS)}")
    return form


Form = Annotated[
    str,
    typer.Option(
        "-o",
        "--format",
        metavar="|".join(FORMS),
        help="How the rows are written.",
        callback=_known_form,
        autocompletion=lambda: list(FORMS),
    ),
]


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
    if form == "json":
        # In ASCII: no character of it does anything to a terminal, and no line is cut.
        sys.stdout.write(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1) + "\n")
        return
    texts = [["" if value is None else visible_line(value) for value in row] for row in rows]
    if form == "csv":
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([names, *texts])
        print_text(lines.getvalue().rstrip("\n"))
        return
    for cells in (names, ["---"] * len(names), *texts):
        print_line("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
