"""The interface of a trainer: it makes a better proposer from the board's records."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from host.records import Record
from host.schedules.proposer import Proposer

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class TrainingResult:
    """The result of one training.

    Attributes:
        proposer: replaces the one of the same name; None if the old model stays because the new one is not
            better on withheld records.
        digest: of the weights in use.
        before, after: error on withheld records of the old model and the new one, see
            `host.tlm.training.gate.Verdict`.
        seconds: duration of the training.
        why: what decided, one line; "" if unknown.
    """

    proposer: Proposer | None
    digest: str
    before: float
    after: float
    seconds: float
    why: str = ""


class Training(Protocol):
    """A training that runs beside the measurements."""

    def result(self, report: Report) -> TrainingResult:
        """Wait for its end.

        Args:
            report: receives the steps that are done and those that there are.

        Raises:
            TlmError: it failed; the model in use stays.
        """

    def cancel(self) -> None:
        """Cancel the training; more than once is no error."""


class Trainer(Protocol):
    """Starts trainings of the language model, which run beside the measurements."""

    def start(self, records: Sequence[Record], last: bool, seconds: float) -> Training | None:
        """Begin to train on the records of the board; None while they are too few.

        Args:
            records: everything measured on the board.
            last: whether this is the training at the end of a run, for which no measurement waits.
            seconds: that it may take; what does not fit is not trained. 0 for no limit.

        Raises:
            TlmError: it cannot begin.
        """

    def reserve_s(self, seconds: float) -> float:
        """Estimated seconds of the last training of a run, if one between two batches took `seconds`."""

    def learned_from(self) -> int:
        """The number of records of the board at the last completed training of any run."""


class TimeLimit:
    """When a training is cancelled.

    Args:
        seconds: from now; infinite for never.

    Attributes:
        passed: whether a training was cancelled.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.passed = False

    @contextlib.contextmanager
    def cancelling(self, training: Training) -> Iterator[None]:
        """Cancel a training that has not ended when it is time."""
        if math.isinf(self._end):
            yield
            return

        def cancel() -> None:
            self.passed = True
            training.cancel()

        watch = threading.Timer(max(0.0, self._end - time.monotonic()), cancel)
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()
