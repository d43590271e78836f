"""`sdk records taught`: what measurements do for kernels that were never measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sdk.cli.options import DeviceFilter, Records, Verbose
from sdk.cli.rows import Form, write_list

if TYPE_CHECKING:
    from sdk.management.taught import TaughtRule

# Columns are not cut where no terminal sets a width.
_WIDTH = 130
_COLUMNS = (
    "board",
    "threads",
    "rule",
    "programs",
    "models",
    "speed",
    "low",
    "high",
    "agreement",
    "agreement_bound",
    "tasks",
    "used",
    "pulled",
)


def taught(
    device: DeviceFilter = "",
    records: Records = "",
    form: Form = "table",
    verbose: Verbose = False,
) -> None:
    """Show what the records have taught about withheld kernels, and whether it chooses programs."""
    from sdk.management.records import device_data, open_store
    from sdk.management.taught import taught_rules

    with open_store(records, must_exist=True) as store:
        rules = taught_rules(store, device_data(device) if device else None)
    rows = [_row(one) for one in rules]
    write_list(form, lambda: _print_table(rows), _COLUMNS, rows)


def _row(rule: TaughtRule) -> tuple[object, ...]:
    evidence = rule.evidence
    speed = evidence.speed
    known = speed.value if speed.n else None
    return (
        rule.board,
        rule.threads,
        evidence.rule,
        evidence.programs,
        evidence.models,
        known,
        speed.low,
        speed.high,
        evidence.agreement if speed.n else None,
        evidence.agreement_bound,
        speed.n,
        evidence.convinces,
        rule.pulled,
    )


def _print_table(rows: Sequence[Sequence[object]]) -> None:
    from rich import box
    from rich.table import Table

    from sdk.cli.console import print_line
    from sdk.cli.terminal import cell, table_console

    if not rows:
        print_line("the records teach nothing yet: sdk deploy MODEL --trials 300 measures programs")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    titles = [
        "board",
        "threads",
        "rule",
        "programs",
        "models",
        "first programs, 95%",
        "agreement",
        "tasks",
        "used",
    ]
    # Who shares nothing sees nothing of packs.
    shared = any(row[-1] for row in rows)
    for title in [*titles, *["pulled"] * shared]:
        table.add_column(title, justify="left" if title in ("board", "rule") else "right", no_wrap=True)
    for (
        board,
        threads,
        rule,
        programs,
        models,
        value,
        low,
        high,
        agreement,
        least,
        tasks,
        used,
        pulled,
    ) in rows:
        bounds = "" if low is None else f" ({low:.3f} to {high:.3f})"
        speed = "" if value is None else f"{value:.3f}{bounds}"
        agrees = "" if least is None else f"{agreement:.2f} >= {least:.2f}"
        texts = (board, threads, rule, programs, models, speed, agrees, tasks, "yes" if used else "no")
        table.add_row(*map(cell, (*texts, pulled)[: len(table.columns)]))
    table_console(_WIDTH).print(table)
