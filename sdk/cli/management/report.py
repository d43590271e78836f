"""`sdk report`: shows the figures of results, and compares two results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from host.errors import UserError
from sdk.cli.help import add_command, new_group
from sdk.cli.options import JsonFile, Verbose
from sdk.cli.rows import Form, write_table

if TYPE_CHECKING:
    from host.statistics import Estimate
    from host.table import Table
    from sdk.report.compare import Change, Comparison

# Something got worse beyond noise and tolerance.
REGRESSION = 3
_WIDTH = 140
_COLOURS = {"better": "green", "worse": "red", "not judged": "yellow"}


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = new_group("report", "Results of deployments.")
    add_command(group, compare, "sdk report compare before.json after.json --tolerance 5")
    add_command(group, show, "sdk report show figures.json -o md")
    app.add_typer(group)


def show(
    result: Annotated[Path, typer.Argument(help="Result of sdk deploy --json, bundle, or report.")],
    form: Form = "table",
    verbose: Verbose = False,
) -> None:
    """Show the figures of a deployment."""
    from sdk.report.side_table import table_of
    from sdk.report.sides import read_side

    figures = table_of(read_side(result))
    write_table(form, lambda: print_figures(figures), figures)


def print_figures(figures: Table) -> None:
    """The table of `sdk report show`."""
    from sdk.cli.console import print_line

    print_line(figures.caption)
    for name, unit, value, remark in figures.rows:
        number = "unknown" if value is None else f"{value:.4g}" if isinstance(value, float) else f"{value}"
        text = f"{number} {unit}".rstrip() if value is not None else number
        print_line(f"{name!s:<40} {text:<20} {remark}".rstrip())


def compare(
    before: Annotated[Path, typer.Argument(help="Result of sdk deploy --json, bundle, or report.")],
    after: Annotated[Path, typer.Argument(help="The same of what is judged.")],
    tolerance: Annotated[
        float, typer.Option(metavar="PERCENT", help="By how much a figure may get worse beyond noise.")
    ] = 0.0,
    json_file: JsonFile = None,
    form: Form = "table",
    verbose: Verbose = False,
) -> None:
    """Say what got better or worse beyond noise.

    Exit code 3: something got worse by more than the tolerance.
    """
    if not 0.0 <= tolerance < 1000.0:
        raise UserError(f"--tolerance {tolerance:g}: give percent from 0, as in --tolerance 5")
    from sdk.cli.printing import write_json
    from sdk.report.compare import compare as run_compare
    from sdk.report.compare import compare_json
    from sdk.report.sides import read_side

    comparison = run_compare(read_side(before), read_side(after), tolerance / 100.0)
    if json_file is not None:
        write_json(json_file, compare_json(comparison))
    write_table(form, lambda: print_comparison(comparison), comparison.tables()[0])
    if comparison.regressions:
        raise typer.Exit(REGRESSION)


def print_comparison(comparison: Comparison) -> None:
    """The table of `sdk report compare`."""
    from rich.table import Table as Columns

    from sdk.cli.console import print_line
    from sdk.cli.terminal import cell, table_console
    from sdk.report.compare import UNJUDGED

    # In a log every line has to hold a row: there is no terminal to fit.
    console = table_console(_WIDTH)
    table = Columns(box=None, pad_edge=False, header_style="bold")
    for name in ("", "before", "after", "after / before", "95% bound", "", ""):
        table.add_column(name, justify="right" if name in ("before", "after", "after / before") else "left")
    for change in comparison.changes:
        ratio = "" if change.ratio is None else f"{change.ratio.value:.3f}"
        table.add_row(
            cell(change.metric),
            cell(_figure(change, change.before)),
            cell(_figure(change, change.after)),
            cell(ratio),
            cell(_bounds(change.ratio)),
            cell(change.verdict, _COLOURS.get(change.verdict, "")),
            # The whole of a long reason is in the JSON.
            cell(change.remark.split(" (")[0]),
        )
    print_line(f"before  {comparison.before.source}")
    print_line(f"after   {comparison.after.source}")
    console.print(table)
    for remark in comparison.remarks:
        print_line(f"note: {remark}")
    worse = ", ".join(change.metric for change in comparison.regressions)
    limit = "noise" if not comparison.tolerance else f"noise and {100 * comparison.tolerance:g}%"
    if all(change.verdict == UNJUDGED for change in comparison.changes):
        print_line("nothing was judged")
        return
    print_line(f"worse beyond {limit}: {worse}" if worse else f"nothing got worse beyond {limit}")


def _figure(change: Change, value: float | None) -> str:
    if value is None:
        return "unknown"
    text = f"{value:.1e}" if change.metric == "accuracy error" else f"{value:.4g}"
    return f"{text} {change.unit}".rstrip()


def _bounds(ratio: Estimate | None) -> str:
    return "" if ratio is None or not ratio.bounded else f"{ratio.low:.3f} to {ratio.high:.3f}"
