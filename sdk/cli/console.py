"""Progress on a terminal or in a log. stderr stays free for the one line of an error."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

# Seconds between two lines of a long stage in a log.
_LINE_EACH_S = 30.0


def print_line(text: str) -> None:
    """One line of a result."""
    sys.stdout.write(text + "\n")


class ConsoleProgress:
    """Shows stages: a live line on a terminal, else one line per finished stage."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = self._console.is_terminal
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[status]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, visible=False, status="")
        self._stage = ""
        self._begin = 0.0
        self._said = 0.0

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
        """A new stage begins."""
        self._finish()
        self._stage = name
        self._begin = self._said = time.perf_counter()
        self._bar.reset(self._task, description=name, total=None, visible=True, status="")

    def advance(self, done: int, total: int) -> None:
        """So much of the stage is done."""
        self._bar.update(self._task, completed=done, total=total)

    def note(self, text: str) -> None:
        """Something that the user should know."""
        self._console.print(f"note: {text}", markup=False, soft_wrap=True)

    def status(self, text: str) -> None:
        """What the stage has come to so far; in a log a line now and then."""
        self._bar.update(self._task, status=text)
        if not self._live and time.perf_counter() - self._said >= _LINE_EACH_S:
            self._said = time.perf_counter()
            self._console.print(f"{self._stage:<9} {text}", markup=False, soft_wrap=True)

    def _finish(self) -> None:
        if self._stage:
            seconds = time.perf_counter() - self._begin
            self._console.print(f"{self._stage:<9} {seconds:6.1f} s", markup=False)
        self._stage = ""
