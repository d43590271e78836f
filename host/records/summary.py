"""Counts of the records of one task."""

from __future__ import annotations

from dataclasses import dataclass

from host.records.record import Record


@dataclass(frozen=True)
class Summary:
    """Counts of the records of one task on one profile in one version of its rule.

    Attributes:
        workload_hash: the task.
        space_version: of the candidates.
        measured: records with times that count.
        failed: records of candidates that do not build or run.
        best: the fastest record; the latest one where none has times that count.
        throttled: records whose times do not count, because the device throttled.
        pulled: records, of all these, that came in packs of other hosts.
        drifted: records whose times do not count, because their board has drifted since.
    """

    workload_hash: str
    space_version: int
    measured: int
    failed: int
    best: Record
    throttled: int = 0
    pulled: int = 0
    drifted: int = 0


@dataclass(frozen=True)
class ForeignSummary:
    """Counts of the records of one task from MetaSchedule's own rules.

    Attributes:
        workload_hash: the task.
        measured, failed: numbers of records.
        best_s: the least median in seconds; None where all failed.
    """

    workload_hash: str
    measured: int
    failed: int
    best_s: float | None
