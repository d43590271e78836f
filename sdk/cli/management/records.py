"""`sdk records`: what was measured on which device, out to files and in from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from host.options import CompileOptions
from sdk.cli.help import add_command, new_group
from sdk.cli.management.packs import publish, pull
from sdk.cli.management.taught import taught
from sdk.cli.options import DeviceFilter, DeviceName, Records, Verbose
from sdk.cli.rows import Form, write_list
from sdk.cli.settings import takes_settings

if TYPE_CHECKING:
    from host.records import ForeignSummary, Summary
    from sdk.management.records import ModelTasks

_FORMATS = ("jsonl", "metaschedule")
_COLUMNS = (
    *("task", "function", "board", "threads", "space", "measured", "failed", "best_s", "proposer", "date"),
    *("pulled", "pack", "drifted", "best_j"),
)
# Who shares nothing sees nothing of packs in a table, and who measures no energy no joules: columns that are
# there if one of them counts anything.
_OPTIONAL = {"pulled": "pulled", "pack": "pulled", "drifted": "drifted", "best_j": "best_j"}
# Columns are not cut where no terminal sets a width.
_WIDTH = 160

OptionalModel = Annotated[
    Path | None,
    typer.Option("--model", help="Model file whose functions the records are of, for MetaSchedule."),
]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    group = new_group("records", "Measurements of all tunings.")
    add_command(group, list_records, "sdk records list --device pi5", "list")
    add_command(group, export_records, "sdk records export records.jsonl", "export")
    add_command(group, import_records, "sdk records import records.jsonl", "import")
    add_command(
        group, copy_records, "sdk records copy records.sqlite postgresql+psycopg://me@host/records", "copy"
    )
    add_command(group, upgrade, "sdk records upgrade --records postgresql+psycopg://owner@host/records")
    add_command(group, downgrade, "sdk records downgrade 4 --records postgresql+psycopg://owner@host/records")
    add_command(group, taught, "sdk records taught --device pi5")
    add_command(group, publish, "sdk records publish orin orin.pack")
    add_command(group, pull, "sdk records pull orin.pack")
    app.add_typer(group)


def list_records(
    device: DeviceFilter = "",
    records: Records = "",
    form: Form = "table",
    verbose: Verbose = False,
) -> None:
    """List the functions on record: how many programs were measured, and the best of them."""
    from sdk.management.records import device_data, open_store, without_threads

    with open_store(records, must_exist=True) as store:
        summaries: Sequence[Summary] = store.summaries()
        foreign = store.foreign_summaries()
    if device:
        wanted = device_data(device)
        summaries = [one for one in summaries if without_threads(one.best.profile) == wanted]
    rows = _rows(summaries, foreign)
    write_list(form, lambda: _print_table(rows, device), _COLUMNS, rows)


@takes_settings("records", CompileOptions)
def export_records(
    path: Annotated[Path, typer.Argument(help="File to write; a folder for MetaSchedule.")],
    form: Annotated[str, typer.Option("--format", help="jsonl or metaschedule.")] = "jsonl",
    model: OptionalModel = None,
    device: DeviceName = "local",
    *,
    verbose: Verbose = False,
    **settings: Any,
) -> None:
    """Write the records: every one as a line of JSON, or those of a model for MetaSchedule."""
    from host.errors import UserError
    from sdk.cli.console import print_line
    from sdk.management.records import ModelTasks, export_metaschedule, open_store

    if form not in _FORMATS:
        raise UserError(f"--format {form}: use {' or '.join(_FORMATS)}")
    options = CompileOptions(model or Path(), **settings)
    with open_store(options.records, must_exist=True) as store:
        if form == "jsonl":
            print_line(f"{store.export(path)} records written to {path}")
            count = sum(one.measured + one.failed for one in store.foreign_summaries())
            if count:
                print_line(
                    f"{count} records of MetaSchedule's own rules left out: --format metaschedule writes them"
                )
            return
        if model is None and store.summaries():
            raise UserError(
                "MetaSchedule's format holds the functions themselves: name their model with --model MODEL"
            )
        tasks = ModelTasks({}, {}) if model is None else _tasks(options, device)
        done = export_metaschedule(store, tasks, path)
    if model is not None:
        print_line(f"{done.written} records of {model} on {device} written to {path}")
    if done.foreign:
        print_line(f"{done.foreign} records of MetaSchedule's own rules written to {path}")
    _print_left_out(done.left_out)


@takes_settings("records", CompileOptions)
def import_records(
    path: Annotated[Path, typer.Argument(help="File of JSON lines, or folder of a MetaSchedule database.")],
    model: OptionalModel = None,
    device: DeviceName = "local",
    *,
    verbose: Verbose = False,
    **settings: Any,
) -> None:
    """Add records that are not there yet; nothing is added where a line is damaged."""
    from host.errors import UserError
    from sdk.cli.console import print_line
    from sdk.management.records import import_lines, import_metaschedule, open_store

    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    options = CompileOptions(model or Path(), **settings)
    with open_store(options.records) as store:
        if path.is_dir():
            tasks = None if model is None else _tasks(options, device)
            taken = import_metaschedule(store, tasks, path)
        else:
            taken = import_lines(store, path)
    if taken.refused:
        print_line(f"left out: {taken.refused}")
    if taken.found or not taken.found_foreign:
        print_line(f"{taken.new} of {taken.found} records are new")
    if taken.found_foreign:
        print_line(
            f"{taken.new_foreign} of {taken.found_foreign} records of MetaSchedule's own rules are new; "
            "they are kept and counted, and no model is built from them"
        )
    if model is None and taken.left_out:
        count = sum(taken.left_out.values())
        print_line(f"{count} records of this program left out: name their model with --model MODEL")
    else:
        _print_left_out(taken.left_out)


def copy_records(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Store to read: a file or a URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Store to add to: a file or a URL.")],
    verbose: Verbose = False,
) -> None:
    """Add all records of a store to another one; the same command goes on where it was cut off."""
    from sdk.cli.console import print_line
    from sdk.cli.terminal import ConsoleProgress
    from sdk.management.records import copy_store, open_store

    with (
        open_store(source, must_exist=True) as read,
        open_store(target) as added,
        ConsoleProgress() as progress,
    ):
        progress.stage("copy")
        done = copy_store(read, added, lambda count: progress.status(f"{count} records"))
    if done.left_out:
        print_line(f"{done.left_out} records say what no measurement says, and are left out")
    print_line(f"{done.new} of {done.found} records are new")
    if done.found_foreign:
        print_line(f"{done.new_foreign} of {done.found_foreign} records of MetaSchedule's own rules are new")


def upgrade(records: Records = "", verbose: Verbose = False) -> None:
    """Make the tables of a shared store, or bring them up to date; its owner does so once."""
    from sdk.cli.console import print_line
    from sdk.management.records import upgrade_store

    print_line(f"{upgrade_store(records)} is up to date")


def downgrade(
    version: Annotated[
        int, typer.Argument(min=1, max=1000, help="Version of the tables that the earlier program reads.")
    ],
    records: Records = "",
    verbose: Verbose = False,
) -> None:
    """Bring the tables of a store back to an earlier version, before going back to an earlier program.

    All records stay. Before version 4, epochs of boards and marks of drifts go, before version 3 leases too.
    """
    from sdk.cli.console import print_line
    from sdk.management.records import downgrade_store

    print_line(f"{downgrade_store(records, version)} is of schema version {version}")


def _tasks(options: CompileOptions, device: str) -> ModelTasks:
    from sdk.cli.terminal import ConsoleProgress
    from sdk.management.records import tasks_of

    with ConsoleProgress() as progress:
        return tasks_of(options, device, progress)


def _print_left_out(left_out: Mapping[str, int]) -> None:
    from sdk.cli.console import print_line

    for reason, count in sorted(left_out.items()):
        print_line(f"{count} records left out: {reason}")


def _rows(summaries: Sequence[Summary], foreign: Sequence[ForeignSummary]) -> list[tuple[object, ...]]:
    """A value for each column; the slowest function first, and what other programs measured last."""
    rows: list[tuple[object, ...]] = []
    for one in sorted(summaries, key=lambda one: -(one.best.median_s or 0.0)):
        best = one.best
        where = (best.profile.get("board"), best.profile.get("threads"), one.space_version)
        counts = (one.measured, one.failed, best.median_s)
        rows.append(
            (
                one.workload_hash,
                best.origin.task or None,
                *where,
                *counts,
                best.candidate.proposer,
                best.made_at[:10],
                one.pulled,
                None if best.origin.pack is None else best.origin.pack["signer"],
                one.drifted,
                best.measurement.energy.gross_j,
            )
        )
    for other in foreign:
        counts = (other.measured, other.failed, other.best_s)
        rows.append(
            (other.workload_hash, None, None, None, None, *counts, "metaschedule", None, 0, None, 0, None)
        )
    return rows


def _print_table(rows: Sequence[Sequence[object]], device: str) -> None:
    from rich import box
    from rich.table import Table

    from sdk.cli.console import print_line
    from sdk.cli.terminal import cell, table_console

    if not rows:
        print_line(f"no records{f' of device {device}' if device else ''} yet")
        return
    console = table_console(_WIDTH)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    counts = {title: any(row[_COLUMNS.index(by)] for row in rows) for title, by in _OPTIONAL.items()}
    places = [place for place, title in enumerate(_COLUMNS) if counts.get(title, True)]
    for title in (_COLUMNS[place] for place in places):
        numeric = title in ("threads", "space", "measured", "failed", "best_s", "pulled", "drifted", "best_j")
        shown = title.removesuffix("_s").replace("best_j", "joules")
        table.add_column(shown, justify="right" if numeric else "left", no_wrap=title != "function")
    best, joules = _COLUMNS.index("best_s"), _COLUMNS.index("best_j")
    for row in rows:
        texts = ["" if value is None else value for value in row]
        texts[best], texts[joules] = _time(row[best]), _energy(row[joules])
        table.add_row(*(cell(texts[place]) for place in places))
    console.print(table)


def _energy(joules: object) -> str:
    return f"{joules * 1e3:.4g} mJ" if isinstance(joules, float) else ""


def _time(seconds: object) -> str:
    return f"{seconds * 1e6:.1f} us" if isinstance(seconds, float) else "none runs"
