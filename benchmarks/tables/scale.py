"""Tables of many records, and of many boards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.result_file import Result
from benchmarks.tables.table import markdown, significant

_ANSWERS_ALONE = "edgetlm.scale_boards/1"


def records(result: Result) -> list[str]:
    """Questions to a database that hosts share, what a writer adds, and what a record takes."""
    figures = result.figures
    best, again, size = figures["best_ms"], figures["best_again_ms"], figures["bytes_per_record"]
    asked = f"the best programs of a model of {figures['model_tasks']} tasks"
    rows = [
        (f"{asked}, median and greatest of many", f"{best['median']:.0f} ms, {best['greatest']:.0f} ms"),
        ("the same questions again", f"{again['median']:.0f} ms, {again['greatest']:.0f} ms"),
        ("records a second of one writer, 500 at a time", f"{figures['batch_per_s']:,.0f}"),
        ("the same, each by itself, as a tuning adds them", f"{figures['single_per_s']:,.0f}"),
        ("the line of a record", f"{size['line']:,.0f} bytes"),
        ("a record in the database, indexes included", f"{size['database']:,.0f} bytes"),
    ]
    return markdown((f"with {figures['records']:,} records", "figure"), rows)


def killed_parts(result: Result) -> list[str]:
    """A tuning of several boards, with each part killed in the middle of it."""
    more = ("lost", "duplicated", "measured again", "back after")
    head = ("killed", "speed-up", "idle", "overhead", "answer", *more)
    # The first version called the time to the answer the overhead.
    times = ("", "overhead_ms") if result.schema == _ANSWERS_ALONE else ("overhead_ms", "answer_ms")
    return markdown(head, [_killed(run, times) for run in result.figures["runs"]])


def _killed(run: Mapping[str, Any], times: Iterable[str]) -> tuple[str, ...]:
    recovered = run["recovery_s"]
    return (
        run["kill"] or "nothing",
        f"{run['speedup']:.2f}",
        f"{run['idle_share']:.1%}",
        *(_milliseconds(run.get(name)) for name in times),
        *(str(run[name]) for name in ("lost", "duplicated", "measured_again")),
        "-" if recovered is None else f"{recovered:.0f} s",
    )


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def many_boards(result: Result) -> list[str]:
    """Many boards of one command."""
    figures = result.figures
    memory, each = figures["memory"], figures["of_a_board"]
    rows = [
        ("measurements", f"{figures['measured']:,} in {figures['minutes']:g} minutes"),
        ("of one board, least, mean and most", f"{each['least']}, {each['mean']:.1f}, {each['most']}"),
        ("greatest difference from the mean", f"{figures['unfairness']:.1%}"),
        ("boards idle", f"{figures['idle_share']:.1%}"),
        ("processor time of the command by measurement", f"{figures['command_cpu_ms']:.1f} ms"),
        ("so that one core of it takes at most", f"{figures['jobs_per_s_of_a_core']:.0f} a second"),
        ("processor time of Ray's head by measurement", f"{figures['head_cpu_ms']:.2f} ms"),
        ("processor time of PostgreSQL by measurement", f"{figures['database_cpu_ms']:.2f} ms"),
        (
            "bytes on the wire by measurement, of them the library",
            f"{figures['wire_bytes']:,.0f}, {figures['library_bytes']:,}",
        ),
        (
            "memory of the command, after a minute and at the end",
            f"{_megabytes(memory[min(5, len(memory) - 1)])}, {_megabytes(memory[-1])}",
        ),
        ("growth, last tenth against the tenth after a third", f"{figures['growth_share']:.1%}"),
        ("leases held at the end", f"{figures['leases_held']:,}"),
    ]
    return markdown((f"{figures['boards']:,} boards, {figures['measurement_s']:g} s each", "figure"), rows)


def _megabytes(sample: Mapping[str, float]) -> str:
    return f"{sample['command'] / 1e6:.0f} MB"


def simulated_boards(result: Result) -> list[str]:
    """From one board to many: how many heads, and what the database and the network get."""
    head = ("boards", "heads", "measurements a second", "idle", "cores of the database")
    more = ("MB a second on the wire", "statements for leases a second", "GB a day", "days to 10^9 records")
    return markdown((*head, *more), map(_simulated, result.figures["fleets"]))


def _simulated(fleet: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{fleet['boards']:,}",
        f"{fleet['heads']:,}",
        significant(fleet["jobs_per_s"]),
        f"{fleet['idle_share']:.1%}",
        significant(fleet["database_load"], 2),
        significant(fleet["wire_bytes_per_s"] / 1e6, 2),
        significant(fleet["leases_per_s"], 2),
        significant(fleet["bytes_per_day"] / 1e9, 2),
        significant(fleet["days_to_billion"], 2),
    )
