"""Records of programs that no design space of ours can make, kept as they came."""

from __future__ import annotations

from dataclasses import dataclass

from host.records.record import key_of


@dataclass(frozen=True)
class ForeignRecord:
    """One tuning record of MetaSchedule's own rules.

    Nothing of the product builds it. It is kept to be counted beside ours, and to be written again.

    Attributes:
        workload_hash: the task, by the hash that ours have.
        workload: MetaSchedule's line of the function.
        content: MetaSchedule's trace, seconds, target and arguments, as JSON.
        median_s: median seconds of one call; None where it did not build or run.
    """

    workload_hash: str
    workload: str
    content: str
    median_s: float | None

    @property
    def workload_key(self) -> str:
        """Hash of the function's line."""
        return key_of(self.workload)

    @property
    def record_key(self) -> str:
        """Hash of the whole: equal records are one record."""
        return key_of([self.workload_key, self.content])
