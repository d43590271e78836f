"""A few programs for a task over a range: constructed on whole tiles, chosen to lose little at any length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from host.dynamic.template import Template
from host.errors import ScheduleError
from host.gensor import Gensor
from host.gensor.walk import WalkOptions
from host.lowering.tasks import flops, workload_hash
from host.model import Candidate, DeviceProfile, Task
from host.schedules import DesignSpace, space_for
from host.schedules.api import Rule
from host.schedules.length_tiling import LengthTile, LengthTiling, TileDesign
from targets import HardwareModel

# Programs of one task at most.
_LARGEST_CHOICE = 12
# Exponent of the mean over lengths: a length that loses much counts more than several that lose little.
_EMPHASIS = 6
# Walks of one construction; each is of a space with few decisions left.
_WALKS = WalkOptions(walks=6, descents=2)
# Lengths, in tiles, at which a program's time is estimated, and the one that is long enough.
_SCALES, _LONG = (1, 2, 4, 8, 16, 32), 1024
# Lengths that show which axes grow.
_SHORTER, _LONGER = 192, 240


def task_at(name: str, template: Template, length: int) -> Task:
    """The task at one length."""
    function = template.at(length)
    return Task(name, function, 1, workload_hash(function), flops(function))


@dataclass(frozen=True, eq=False)
class RangeProgram:
    """One program of a task, in whole tiles of the length.

    Attributes:
        candidate: the decisions.
        hardware: the processor as the rule saw it (vectors may be shorter for short lengths).
        tile: its tile along the length.
        tile_s: estimated seconds of one tile by length.
        shortest_length: that it takes.
    """

    candidate: Candidate
    hardware: HardwareModel
    tile: LengthTile
    tile_s: Mapping[int, float]
    shortest_length: int

    def seconds(self, length: int) -> float:
        """Estimated time of one call: that of the tiles it takes."""
        nearest = min(self.tile_s, key=lambda known: abs(known - length))
        return self.tile_s[nearest] * self.tile.count(length)

    def space_at(self, multiple: int, name: str, template: Template) -> DesignSpace:
        """The design space at a multiple of its period, its decisions only, one thread."""
        space = space_for(task_at(name, template, self.tile.period * multiple), self.hardware)
        return space.decided(_numbers(self.candidate))


def programs_over(
    name: str, template: Template, profile: DeviceProfile, low: int, high: int, seed: int
) -> tuple[RangeProgram, ...]:
    """The programs that lose least over the range, the best of all first.

    Raises:
        ScheduleError: no program has tiles that may overlap.
    """
    pool = list(_pool(name, template, profile, seed))
    if not pool:
        raise ScheduleError(f"{name}: no register-blocked program over the length")
    lengths = _sampled_lengths(low, high)
    costs = [[p.seconds(n) if p.shortest_length <= n else float("inf") for n in lengths] for p in pool]
    best = [min(column) for column in zip(*costs, strict=True)]
    chosen: list[int] = []
    current = [float("inf")] * len(lengths)
    while len(chosen) < _LARGEST_CHOICE:
        totals = [
            _regret([min(a, b) for a, b in zip(current, costs[i], strict=True)], best)
            for i in range(len(pool))
        ]
        pick = min(range(len(pool)), key=lambda i: totals[i])
        if chosen and totals[pick] > 0.9999 * _regret(current, best):
            break
        chosen.append(pick)
        current = [min(a, b) for a, b in zip(current, costs[pick], strict=True)]
    return tuple(pool[i] for i in chosen)


def _regret(times: Sequence[float], best: Sequence[float]) -> float:
    """Generalised mean of time over best time; a length that no program serves counts a hundred."""
    shares = [min(100.0, a / b) ** _EMPHASIS for a, b in zip(times, best, strict=True) if b != float("inf")]
    return float((sum(shares) / max(1, len(shares))) ** (1 / _EMPHASIS))


def _sampled_lengths(low: int, high: int) -> list[int]:
    """Every short length and, further up, about as many in every doubling."""
    lengths, length = [], low
    while length <= high:
        lengths.append(length)
        length += max(1, length // 24)
    return [*lengths, high]


def fastest_at_each(programs: Sequence[RangeProgram], low: int, high: int) -> list[int]:
    """The number of the quickest program at each length; -1 where none takes it."""
    found = []
    for length in range(low, high + 1):
        able = [i for i, program in enumerate(programs) if program.shortest_length <= length]
        found.append(min(able, key=lambda i: programs[i].seconds(length), default=-1))
    return found


def _pool(name: str, template: Template, profile: DeviceProfile, seed: int) -> Iterator[RangeProgram]:
    shorter, longer = (
        space_for(task_at(name, template, length), profile.hardware, profile.threads)
        for length in (_SHORTER, _LONGER)
    )
    rule = shorter.rule
    if rule.length_tiling is None or longer.rule is not rule:
        raise ScheduleError(f"{name}: rule {rule.name} has no tiles")
    try:
        tiling = rule.length_tiling.between(shorter.workload, longer.workload, profile.hardware)
    except ScheduleError as error:
        raise ScheduleError(f"{name}: {error}") from error
    for design in tiling.designs(profile.hardware):
        found = _constructed(name, template, profile, rule, tiling, design, seed)
        if found is not None:
            yield found


def _constructed(
    name: str,
    template: Template,
    profile: DeviceProfile,
    rule: Rule,
    tiling: LengthTiling,
    design: TileDesign,
    seed: int,
) -> RangeProgram | None:
    """The best program with a given tile along the length; None if there is none."""
    hardware = design.hardware
    space = space_for(task_at(name, template, design.length), hardware, profile.threads)
    fixed = space.fixed(design.decisions) if space.rule is rule else None
    if fixed is None:
        return None
    proposals = Gensor(options=_WALKS).propose(fixed, replace(profile, hardware=hardware), (), 1, seed)
    if not proposals:
        return None
    values = _numbers(proposals[0])
    tile = tiling.tile(values, hardware)
    seconds: dict[int, float] = {}
    for length in (tile.step * scale for scale in _SCALES):
        if length > _LONG and seconds:
            break
        space = space_for(task_at(name, template, length), hardware, profile.threads)
        if space.rule is rule:
            seconds[length] = space.estimate_s(tiling.decisions_at(values, length)) / tile.count(length)
    if not seconds:
        raise ScheduleError(f"{name}: no estimate for tiles of {' x '.join(map(str, tile.extents))}")
    return RangeProgram(proposals[0], hardware, tile, seconds, tile.shortest_length)


def _numbers(candidate: Candidate) -> dict[str, int]:
    return {name: int(value) for name, value in candidate.decisions}  # type: ignore[arg-type]
