"""Options of a tuning, and the interface by which a tuning reports its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from host.records import RecordOrigin
from host.tuning.budget import Budget, Deadline


@dataclass(frozen=True)
class TuneOptions:
    """Options of a tuning.

    Attributes:
        tuning: key of the tuning (`host.tuning.history.tuning_key`), whose runs share a budget.
        budget: the limits.
        seed: of every random choice.
        concurrent: whether other work may run while the device measures.
        low_priority: whether that work has a low priority, because the host is the device.
        workers: programs built at once.
        origin: of every record: command, model, seed, versions.
        overlap: whether the next batch begins while boards still measure the one before.
        confirm: whether the last trials measure again what would replace the reference programs of the tasks.
        bases: digest of the language model behind a proposer, by the proposer's name.
        epochs: in which boards are, by name; looked up for each record, since boards come and go.
        deadline: by which this call ends, whatever the budget leaves of earlier runs.
        job_s: expected seconds of the first job of measurements, which does not begin later than that before
            the deadline; later ones are expected to take as long as the longest so far.
        exponent: of watts in the cost that programs are chosen by (`host.options.objective`).
    """

    tuning: str
    budget: Budget
    seed: int = 0
    concurrent: bool = True
    low_priority: bool = False
    workers: int = 1
    overlap: bool = False
    confirm: bool = False
    origin: RecordOrigin = field(default_factory=RecordOrigin)
    bases: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[str, str] = field(default_factory=dict)
    deadline: Deadline = field(default_factory=Deadline)
    job_s: float = 0.0
    exponent: float = 0.0


@dataclass(frozen=True)
class TuningProgress:
    """How far a tuning has come.

    Attributes:
        trials: of the tuning so far.
        elapsed_s: of the tuning so far.
        budget: what ends it.
        model_s: estimated seconds of one run of the model with the best programs; an unmeasured task
            counts as estimated.
        unmeasured: tasks without a measurement.
        won: tasks won so far by each proposer.
        loss: of the last training on withheld records; None before the first.
        training: steps of the training that ends the run, done and in all; None while there is none.
    """

    trials: int
    elapsed_s: float
    budget: Budget
    model_s: float
    unmeasured: int
    won: Mapping[str, int]
    loss: float | None
    training: tuple[int, int] | None = None


class Listener(Protocol):
    """Receives the reports of the loop; called from several threads."""

    def progress(self, progress: TuningProgress) -> None:
        """Called after each trial, and after each step of the training that ends the run."""

    def note(self, text: str) -> None:
        """A note for the user; each text comes once."""
