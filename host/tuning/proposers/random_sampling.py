"""Random programs, or the best of several random ones by the estimate."""

from __future__ import annotations

import random
from collections.abc import Sequence

from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.drawing import draw_ranked

# Draws for each program that is to be found; small spaces give the same ones again and again.
_DRAWS = 8


class RandomSampling:
    """Uniformly random legal programs, in the order in which they were drawn.

    Args:
        ranked: each program is the one of so many random ones with the least estimate.
        name: of the proposer, where several of them propose.
    """

    def __init__(self, ranked: int = 1, name: str = "random") -> None:
        self.name = name
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
            values = draw_ranked(space, generator, self._ranked)
            found.setdefault(tuple(values.items()), space.candidate(values, self.name))
            if len(found) == k:
                break
        return list(found.values())
