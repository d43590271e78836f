"""`sdk watch`: whether boards still run programs as fast as when their epoch began."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from host.options import text_of
from sdk.cli import completion
from sdk.cli.forms import parse_seconds
from sdk.cli.help import add_command
from sdk.cli.options import GATE_NOT_MET, Records, Verbose
from sdk.cli.rows import Form, write_list

if TYPE_CHECKING:
    from host.commands.deployed_models import DeployedModel
    from host.commands.watch import Watched, WatchOptions
    from host.statistics import Estimate

_COLUMNS = (
    *("device", "status", "program", "ratio", "low", "high", "system", "since", "records"),
    *("models", "slower", "earlier_faster", "rolled_back", "reason"),
)
_EVERY = "6h"
_LEAST_S = 60.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    examples = (
        "sdk watch pi5 orin --once",
        "sdk watch tag:kitchen --every 6h",
        "sdk watch pi5 --once --accept",
    )
    add_command(app, watch, "\n".join(examples))


def watch(
    devices: Annotated[
        list[str],
        typer.Argument(
            metavar="DEVICE...",
            help="Names of devices, or tag:NAME; sdk devices list shows them.",
            autocompletion=completion.devices,
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Watch once and end, as a timer wants it.")] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="6h", help="Watch again and again; every 6h if not given.")
    ] = "",
    accept: Annotated[
        bool, typer.Option("--accept", help="Take a drifted board as it is now: its new epoch begins.")
    ] = False,
    rollback: Annotated[
        bool,
        typer.Option("--rollback", help="Go back to the earlier version of a model where that is faster."),
    ] = False,
    wait: Annotated[str, typer.Option("--wait", metavar="10m", help=text_of("wait_s"))] = "",
    engine: Annotated[
        str, typer.Option("--engine", metavar="local|ray|ray://HEAD", help=text_of("engine"))
    ] = "local",
    records: Records = "",
    form: Form = "table",
    verbose: Verbose = False,
) -> None:
    """Measure whether boards have drifted, and take out those that have. Exit code 3 if one has.

    A board has drifted if its reference programs take more than 5% longer or less than when its epoch
    began. Tunings refuse it, its records of that epoch are left out, and its models are measured again.
    """
    from host.errors import EdgeError, UserError
    from sdk.cli.console import print_error
    from sdk.management import watch as management

    if accept and not once:
        raise UserError("--accept takes a board as it is now: give --once with it")
    pause_s, wait_s = _pause_s(once, every), parse_seconds(wait, "--wait")
    names = management.device_names(devices, engine)
    from host.commands.watch import WatchOptions

    options = WatchOptions(records, accept, rollback, wait_s, engine)
    while True:
        try:
            found = _watched(names, options, form)
        except EdgeError as error:
            if once or isinstance(error, UserError):
                raise
            print_error(f"error: {error}")
        else:
            if once and (code := _exit_code(found)):
                raise typer.Exit(code)
        if once:
            return
        time.sleep(pause_s)


def _pause_s(once: bool, every: str) -> float:
    from host.errors import UserError

    if once and every:
        raise UserError("--once and --every: give one of them")
    pause_s = parse_seconds(every or _EVERY, "--every")
    if pause_s < _LEAST_S:
        raise UserError(f"--every {every}: a watch takes a board's time, give a minute at least")
    return pause_s


def _watched(names: Sequence[str], options: WatchOptions, form: str) -> tuple[Watched, ...]:
    """Watch once, and write what was found."""
    from sdk.cli.terminal import ConsoleProgress
    from sdk.management import watch as management

    # Beside rows for programs, what is going on is told elsewhere.
    with ConsoleProgress(sys.stdout if form == "table" else sys.stderr) as progress:
        found = management.watch(names, options, progress)
    write_list(form, lambda: _print(found), _COLUMNS, map(_row, found))
    sys.stdout.flush()
    return found


def _exit_code(found: Sequence[Watched]) -> int:
    """3 where a board has drifted, else 1 where one could not be measured."""
    statuses = {one.status for one in found}
    return GATE_NOT_MET if "drifted" in statuses else 1 if "failed" in statuses else 0


def _row(one: Watched) -> tuple[object, ...]:
    """A value for each column."""
    first = one.changes[0] if one.changes else None
    ratio = first.ratio if first is not None else None
    return (
        *(one.device, one.status, first and first.program),
        *((None, None, None) if ratio is None else (ratio.value, ratio.low, ratio.high)),
        *(", ".join(one.system) or None, _date(one.since), one.records, len(one.models)),
        ", ".join(model.name for model in one.models if model.slower) or None,
        ", ".join(model.name for model in one.models if model.earlier_is_faster) or None,
        *(", ".join(one.rolled_back) or None, one.reason or None),
    )


def _print(found: Sequence[Watched]) -> None:
    from sdk.cli.console import print_line

    width = max(len(one.device) for one in found)
    for one in found:
        print_line(f"{one.device:<{width}}  {one.status:<8}  {_text(one)}")
        for line in (*map(_model_text, one.models), *_advice(one)):
            print_line(f"{'':<{width}}  {line}")


def _text(one: Watched) -> str:
    if one.status == "begun":
        return "its first epoch begins: the times of its reference programs are kept"
    if one.status == "accepted":
        return "its new epoch begins; what is measured from now on counts"
    if one.status == "failed":
        return one.reason
    first = one.changes[0]
    if one.status == "steady":
        also = f"; {', '.join(one.system)}" if one.system else ""
        return f"{first}{_bounds(first.ratio)} than on {_date(one.since)}{also}"
    left_out = "" if one.records is None else f"; {one.records} records of that epoch are left out"
    return f"{one.reason}; now {first}{_bounds(first.ratio)}{left_out}"


def _model_text(one: DeployedModel) -> str:
    if one.latency_s is None:
        return f"{one.name}: not measured: {one.reason}"
    text = f"{one.name}: {one.latency_s.value * 1e3:.3f} ms"
    if one.since_installed is not None:
        text += f", {one.since_installed.value:.3f} times as long as at its installation"
        text += f"{_bounds(one.since_installed)}: slower" if one.slower else ""
    if one.over_earlier is not None:
        text += f"; {one.over_earlier.value:.3f} times as long as version {one.earlier[:12]}"
        text += f"{_bounds(one.over_earlier)}"
    return f"{text}; {one.reason}" if one.reason else text


def _advice(one: Watched) -> Iterator[str]:
    """What to type next."""
    for name in one.rolled_back:
        yield f"{name} runs its earlier version again"
    for model in one.models:
        if model.earlier_is_faster and model.name not in one.rolled_back:
            yield f"next: sdk rollback {model.name} --device {one.device}, or sdk watch with --rollback"
        elif model.slower and not model.earlier_is_faster:
            yield f"next: deploy {model.name} again, in the new epoch"
    if one.status == "drifted":
        yield f"next: look for the cause, or begin a new epoch with sdk watch {one.device} --once --accept"


def _bounds(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    return f" ({ratio.low:.3f} to {ratio.high:.3f})"


def _date(seconds: float | None) -> str | None:
    """Of a database that anybody may have written, whose clock may be anywhere."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return "an unknown date"
