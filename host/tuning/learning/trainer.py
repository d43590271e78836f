"""What the loop asks of whoever trains: a proposer that has learned from the board's records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from host.records import Record
from host.schedules.proposer import Proposer


@dataclass(frozen=True)
class TrainingResult:
    """What came of one training.

    Attributes:
        proposer: takes the place of the one of its name; None where the old model stays because the new one
            does not beat it on withheld records.
        digest: of the weights in use.
        before, after: loss on withheld records of the old model and the new one.
        seconds: that it took.
    """

    proposer: Proposer | None
    digest: str
    before: float
    after: float
    seconds: float


class Training(Protocol):
    """A training under way."""

    def result(self) -> TrainingResult:
        """Wait for its end.

        Raises:
            TlmError: it failed; the model in use stays.
        """

    def cancel(self) -> None:
        """End it, whatever it has got; more than once is no error."""


class Trainer(Protocol):
    """Trains in the background."""

    def start(self, records: Sequence[Record], last: bool) -> Training | None:
        """Begin to train on the records of the board; None while they are too few.

        Args:
            records: everything measured on the board.
            last: no measurement waits for this one.

        Raises:
            TlmError: it cannot begin.
        """

    def reserve_s(self, seconds: float) -> float:
        """Seconds that the training that ends a run takes, where one between two batches took `seconds`."""

    def learned_from(self) -> int:
        """How many records of the board there were at the last training that ended, of any run."""
