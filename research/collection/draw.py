"""Which programs of a task are measured: where proposers look, and everywhere else."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

from host.gensor import Gensor
from host.model import DeviceProfile
from host.schedules import DesignSpace

Values = dict[str, int]

_CONSTRUCTED, _NEIGHBOURS = 4, 4
# A random program is the best of so many by the estimate, every other time.
_RANKED = 8
_ATTEMPTS = 8


def draw_programs(
    space: DesignSpace, profile: DeviceProfile, sweep: int, count: int, known: Collection[Values]
) -> list[tuple[Values, str]]:
    """Programs for one sweep over a task, each with its origin; fewer where the space has no more.

    Args:
        space: of the task.
        profile: of the device.
        sweep: number of the sweep, which seeds the draw; the first one begins with Gensor's programs.
        count: how many.
        known: values of programs that were drawn before.
    """
    generator = random.Random(f"{space.task.workload_hash}/{sweep}")
    taken = [dict(values) for values in known]
    chosen: list[tuple[Values, str]] = []
    for values, origin in _drawn(space, profile, sweep, count, generator):
        if len(chosen) == count:
            break
        if values not in taken:
            taken.append(values)
            chosen.append((values, origin))
    return chosen


def _drawn(
    space: DesignSpace, profile: DeviceProfile, sweep: int, count: int, generator: random.Random
) -> Iterator[tuple[Values, str]]:
    if sweep == 0:
        constructed = Gensor().propose(space, profile, (), _CONSTRUCTED, seed=0)
        programs = [{name: int(value) for name, value in one.decisions} for one in constructed]  # type: ignore[arg-type]
        yield from ((values, "gensor") for values in programs)
        beside = list(space.neighbours(programs[0]))
        generator.shuffle(beside)
        yield from ((values, "neighbour") for values in beside[:_NEIGHBOURS])
    for number in range(_ATTEMPTS * count):
        if number % 2:
            yield space.sample(generator), "uniform"
        else:
            yield min((space.sample(generator) for _ in range(_RANKED)), key=space.estimate_s), "estimate"
