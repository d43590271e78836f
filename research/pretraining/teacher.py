"""The teacher of the language model: programs that are good by the estimate, and programs that chance writes.

The programs of short walks of Gensor show what is fast. Random programs show the rest of the space: without
them a model never sees what a slow program is, and its quality tokens mean little. Both are judged by the one
estimate, so the best of either is the best known.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from host.errors import ScheduleError
from host.gensor import Gensor
from host.gensor.walk import WalkOptions
from host.model import Candidate, DeviceProfile, Measurement
from host.schedules.design import DesignSpace
from host.schedules.drawing import draw_ranked

# A third of the time of the usual walks, for programs that are 0.3% slower by the estimate (60 drawn tasks).
_WALKS = WalkOptions(walks=8, stall=5, wide=2, descents=3, draws=96)
# Random programs: each is the best of so many draws.
_DRAWN = (16, 16, 1, 1)


class Teacher:
    """Constructed and random programs, the fastest first by the estimate."""

    name = "teacher"

    def propose(
        self,
        space: DesignSpace,
        profile: DeviceProfile,
        history: Sequence[tuple[Candidate, Measurement]],
        k: int,
        seed: int,
    ) -> list[Candidate]:
        """Up to `k` different candidates, of which up to four are random; `history` is not used.

        Raises:
            ScheduleError: the space has no legal program.
        """
        found = Gensor(options=_WALKS).propose(space, profile, [], max(1, k - len(_DRAWN)), seed)
        known = {one.decisions: one for one in found}
        generator = random.Random(f"{space.task.workload_hash}/{seed}/drawn")
        for number in _DRAWN:
            try:
                values = draw_ranked(space, generator, number)
            except ScheduleError:
                break  # hardly any values fit together: the walks have met what there is
            one = space.candidate(values, self.name, space.estimate_s(values))
            known.setdefault(one.decisions, one)
        return sorted(known.values(), key=lambda one: (one.estimate_s, one.decisions))[:k]
