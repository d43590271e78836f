"""Random programs, which the best of several by the estimate may stand for."""

from __future__ import annotations

import random
from collections.abc import Sequence

from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace

# Draws for each program that is to be found; small spaces give the same ones again and again.
_DRAWS = 8


class RandomSampling:
    """Uniformly random legal programs, in the order in which they were drawn.

    Args:
        ranked: each program is the one of so many random ones with the least estimate.
    """

    def __init__(self, ranked: int = 1) -> None:
        self.name = "random"
        self._ranked = ranked

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` different candidates; `history` is not used.

        Raises:
            ScheduleError: no legal program was found.
        """
        generator = random.Random(f"{space.task.workload_hash}/{seed}")
        found: dict[tuple[tuple[str, int], ...], Candidate] = {}
        for _ in range(_DRAWS * k):
            drawn = [space.sample(generator) for _ in range(self._ranked)]
            values = min(drawn, key=space.estimate_s) if self._ranked > 1 else drawn[0]
            found.setdefault(tuple(values.items()), space.candidate(values, self.name))
            if len(found) == k:
                break
        return list(found.values())
