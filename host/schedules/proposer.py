"""The interface of proposers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.api import Decisions
from host.schedules.design import DesignSpace

# Seconds, or another cost, of one call of a program.
Estimate = Callable[[DesignSpace, Decisions], float]


class Proposer(Protocol):
    """Proposes programs for a task without measuring."""

    name: str

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` different candidates, best first; the same arguments give the same list."""


@runtime_checkable
class EstimatingProposer(Proposer, Protocol):
    """A proposer whose programs and their order depend on an estimate that it is given."""

    def by(self, estimate: Estimate | None) -> Proposer:
        """The same proposer with another estimate; None for none."""
