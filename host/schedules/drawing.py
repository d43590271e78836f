"""Random programs, of which the best of several by the estimate is taken."""

from __future__ import annotations

import random

from host.schedules.design import DesignSpace


def draw_ranked(space: DesignSpace, generator: random.Random, count: int) -> dict[str, int]:
    """The one of `count` uniformly random legal programs with the least estimate.

    Args:
        space: of the task.
        generator: that draws them.
        count: 1 at least; 1 estimates nothing.

    Raises:
        ScheduleError: no legal program was found.
    """
    drawn = [space.sample(generator) for _ in range(count)]
    return min(drawn, key=space.estimate_s) if count > 1 else drawn[0]
