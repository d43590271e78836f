"""A proposer: random legal programs, those of the best estimates first.

It is what anything that learns has to beat.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from sdk.compiler import Candidate, DesignSpace, DeviceProfile, Measurement


class BestOfRandom:
    """Draws programs and ranks them by the estimate of the hardware model."""

    name = "best_of_random"
    drawn = 128

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` programs that have not been measured, best estimate first."""
        draw = random.Random(f"{space.task.workload_hash}/{seed}")
        measured = {candidate.decisions for candidate, _ in history}
        found = {}
        for _ in range(self.drawn):
            values = space.sample(draw)
            candidate = space.candidate(values, self.name, space.estimate_s(values))
            if candidate.decisions not in measured:
                found[candidate.decisions] = candidate
        return sorted(found.values(), key=lambda one: one.estimate_s)[:k]
