"""Progress of long work: what a stage reports, and seconds by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """Receives what long work reports about itself."""

    def stage(self, name: str) -> None:
        """A new stage begins; the one before it has ended."""

    def advance(self, done: int, total: int) -> None:
        """`done` of `total` units of the stage are done."""

    def note(self, text: str) -> None:
        """Show something that the user should know: a fallback, a missing peer."""

    def status(self, text: str) -> None:
        """Show the present state of the stage, which replaces the one before."""

    def latencies(self, seconds: Mapping[str, float]) -> None:
        """Median seconds of a run so far, by name of what is measured; they change with every round."""


class Silence:
    """A `Progress` that ignores every report."""

    def stage(self, name: str) -> None:
        """Ignored."""

    def advance(self, done: int, total: int) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""

    def status(self, text: str) -> None:
        """Ignored."""

    def latencies(self, seconds: Mapping[str, float]) -> None:
        """Ignored."""


@dataclass(frozen=True)
class StageSpan:
    """When a stage was under way.

    Attributes:
        name: of the stage.
        begin_s: seconds from the start of the whole.
        seconds: that it took.
    """

    name: str
    begin_s: float
    seconds: float


class StageClock:
    """Counts the seconds of each stage and reports each beginning to a `Progress`.

    Args:
        progress: receives the names of stages.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._begin = time.perf_counter()
        self._spans: list[StageSpan] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what is done inside as stage `name`; the same name adds up."""
        self.progress.stage(name)
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._spans.append(StageSpan(name, begin - self._begin, time.perf_counter() - begin))

    def seconds(self) -> dict[str, float]:
        """Seconds by stage so far, and "total" since the start."""
        found: dict[str, float] = {}
        for span in self._spans:
            found[span.name] = found.get(span.name, 0.0) + span.seconds
        return found | {"total": time.perf_counter() - self._begin}

    def spans(self) -> tuple[StageSpan, ...]:
        """Every stage that has ended, in the order in which they ended."""
        return tuple(self._spans)
