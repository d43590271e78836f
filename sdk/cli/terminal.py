"""Output of a terminal beyond plain lines: tables, and progress that is redrawn.

Text is made visible as in `sdk.cli.console`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from sdk.text import visible_line

# Seconds between two lines of a long stage in a log.
_LINE_EACH_S = 30.0


def cell(text: object, style: str = "") -> Text:
    """A cell of a table, whose text is never markup."""
    return Text(visible_line(text), style=style)


def table_console(width: int) -> Console:
    """A console for a table.

    Args:
        width: where no terminal sets one, so that columns are not cut.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = width
    return console


class ConsoleProgress:
    """Shows stages: a live line on a terminal, else one line per finished stage.

    Args:
        stream: where; standard output if None.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live = self._console.is_terminal
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<9}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            TextColumn("{task.fields[latencies]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, visible=False, status="", latencies="")
        self._stage = ""
        self._begin = 0.0
        self._printed_s = 0.0

    def __enter__(self) -> ConsoleProgress:
        if self._live:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        if self._live:
            self._bar.stop()

    def stage(self, name: str) -> None:
        """Called when a new stage begins."""
        self._finish()
        name = visible_line(name)
        self._stage = name
        self._begin = self._printed_s = time.perf_counter()
        # `reset` keeps the total of the stage before where it is given none.
        self._bar.reset(self._task, description=name, visible=True, status="", latencies="")
        self._bar.tasks[0].total = None

    def advance(self, done: int, total: int) -> None:
        """Called with the finished part of the stage."""
        self._bar.update(self._task, completed=done, total=total)

    def note(self, text: str) -> None:
        """Something that the user should know."""
        self._console.print(visible_line(f"note: {text}"), soft_wrap=True)

    def status(self, text: str) -> None:
        """What the stage has come to so far; in a log a line now and then."""
        text = visible_line(text)
        self._bar.update(self._task, status=text)
        if not self._live and time.perf_counter() - self._printed_s >= _LINE_EACH_S:
            self._printed_s = time.perf_counter()
            self._console.print(f"{self._stage:<9} {text}", soft_wrap=True)

    def latencies(self, seconds: Mapping[str, float]) -> None:
        """Medians so far, on the live line alone: a log has those of the end."""
        shown = ", ".join(f"{name} {value * 1e3:.3f}" for name, value in seconds.items())
        self._bar.update(self._task, latencies=visible_line(f"{shown} ms") if shown else "")

    def _finish(self) -> None:
        if self._stage:
            seconds = time.perf_counter() - self._begin
            self._console.print(f"{self._stage:<9} {seconds:6.1f} s")
        self._stage = ""
