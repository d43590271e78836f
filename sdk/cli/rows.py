"""Lists for programs: the rows of a table as JSON, CSV or Markdown."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from host.errors import UserError
from sdk.cli.console import print_line, print_text
from sdk.text import visible_line

FORMS = ("table", "json", "csv", "md")

Form = Annotated[
    str,
    typer.Option(
        "-o",
        "--format",
        metavar="|".join(FORMS),
        help="How the rows are written.",
        autocompletion=lambda: list(FORMS),
    ),
]


def check_form(form: str) -> None:
    """Refuse an unknown form before any work.

    Raises:
        UserError: there is none of this name.
    """
    if form not in FORMS:
        raise UserError(f"--format {form}: use {', '.join(FORMS)}")


def write_rows(form: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows for programs.

    Args:
        form: "json", "csv" or "md".
        names: of the columns.
        rows: a value for each column; None where there is none.
    """
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
