"""The interface of proposers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace


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
