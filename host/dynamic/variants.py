"""A few programs for a task over a range: constructed on whole tiles, chosen to lose little at any length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod

from host.dynamic.template import Template
from host.errors import ScheduleError
from host.gensor import Gensor
from host.gensor.walk import WalkOptions
from host.lowering.tasks import flops, workload_hash
from host.model import Candidate, DeviceProfile, Task
from host.schedules import DesignSpace, space_for
from host.schedules.cpu.tiled.cost import FETCHING_ROWS
from host.schedules.cpu.tiled.roles import Roles, roles_of
from targets import HardwareModel

# Rows of a register tile that are tried, and vectors where these run along the length.
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_VECTORS = (1, 2, 3, 4)
# Programs of one task at most.
LARGEST_CHOICE = 12
# Exponent of the mean over lengths: a length that loses much counts more than several that lose little.
_EMPHASIS = 6
# Walks of one construction; each is of a space with few decisions left.
_WALKS = WalkOptions(walks=6, descents=2)
# Lengths, in tiles, at which a program's time is estimated.
_SCALES = (1, 2, 4, 8, 16, 32)


# Programs of so few rows serve inputs of hardly more, and are made for them.
_FEW_ROWS = 8


def task_at(name: str, template: Template, length: int) -> Task:
    """The task at one length."""
    function = template.at(length)
    return Task(name, function, 1, workload_hash(function), flops(function))


@dataclass(frozen=True)
class Along:
    """Which axes of a register-blocked program run along the length.

    Attributes:
        rows, vector, second, reduction: whether it is that axis.
    """

    rows: bool
    vector: bool
    second: bool
    reduction: bool


_ROWS_ALONE = Along(rows=True, vector=False, second=False, reduction=False)


@dataclass(frozen=True, eq=False)
class Variant:
    """One program of a task, in whole tiles.

    Attributes:
        candidate: the decisions.
        hardware: the processor as the rule saw it (vectors may be shorter for short lengths).
        along: where the length is.
        rows, vectors: tile along rows and along vectors in elements; 1 where that is not the length.
        unit_s: estimated seconds of one tile by length.
        least: the least length that it takes.
    """

    candidate: Candidate
    hardware: HardwareModel
    along: Along
    rows: int
    vectors: int
    unit_s: Mapping[int, float]
    least: int

    @property
    def whole(self) -> int:
        """A length of whole blocks of tiles."""
        values = dict(self.candidate.decisions)
        blocks = int(values["block"]) if self.along.rows else 1  # type: ignore[arg-type]
        return lcm(self.rows * blocks, self.vectors)

    def seconds(self, length: int) -> float:
        """Estimated time of one call: that of the tiles it takes."""
        nearest = min(self.unit_s, key=lambda known: abs(known - length))
        return self.unit_s[nearest] * _tiles(self.along, self.rows, self.vectors, length)


def _tiles(along: Along, rows: int, vectors: int, length: int) -> float:
    tiles = 1.0
    if along.rows:
        tiles *= -(-length // rows)
    if along.vector:
        tiles *= -(-length // vectors)
    if along.second:
        tiles *= length
    if along.reduction:
        tiles *= length
    return tiles


def along_of(shorter: DesignSpace, longer: DesignSpace) -> Along:
    """Which axes grow between two lengths.

    Raises:
        ScheduleError: an axis of another kind does, or padding is read.
    """
    a, b = shorter.workload.anchor_stage, longer.workload.anchor_stage
    if any(stage.kind == "padding" for stage in shorter.workload.stages):
        raise ScheduleError(f"{shorter.task.name}: padded tiles do not overlap")
    roles = roles_of(a, shorter.hardware)
    if roles is None or len(a.axes) != len(b.axes):
        raise ScheduleError(f"{shorter.task.name}: its axes change with the length")
    grown = {i for i, (x, y) in enumerate(zip(a.axes, b.axes, strict=True)) if x.extent != y.extent}
    return Along(
        rows=bool(grown & set(roles.rows)),
        vector=roles.vector in grown,
        second=roles.second is not None and bool(grown & {*roles.outer}),
        reduction=bool(grown & set(roles.reduction)),
    )


def variants_of(
    name: str, template: Template, profile: DeviceProfile, low: int, high: int, seed: int
) -> tuple[Variant, ...]:
    """The programs that lose least over the range, the best of all first.

    Raises:
        ScheduleError: no register-blocked program has tiles that may overlap.
    """
    pool = list(_pool(name, template, profile, seed))
    if not pool:
        raise ScheduleError(f"{name}: no register-blocked program over the length")
    lengths = _sample(low, high)
    costs = [[v.seconds(n) if v.least <= n else float("inf") for n in lengths] for v in pool]
    best = [min(column) for column in zip(*costs, strict=True)]
    chosen: list[int] = []
    current = [float("inf")] * len(lengths)
    while len(chosen) < LARGEST_CHOICE:
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
    """Generalised mean of time over best time; a length that nobody serves counts a hundred."""
    shares = [min(100.0, a / b) ** _EMPHASIS for a, b in zip(times, best, strict=True) if b != float("inf")]
    return float((sum(shares) / max(1, len(shares))) ** (1 / _EMPHASIS))


def _sample(low: int, high: int) -> list[int]:
    """Every short length and, further up, about as many in every doubling."""
    lengths, length = [], low
    while length <= high:
        lengths.append(length)
        length += max(1, length // 24)
    return [*lengths, high]


def best_of(variants: Sequence[Variant], low: int, high: int) -> list[int]:
    """The number of the quickest variant at each length; -1 where none takes it."""
    found = []
    for length in range(low, high + 1):
        able = [i for i, variant in enumerate(variants) if variant.least <= length]
        found.append(min(able, key=lambda i: variants[i].seconds(length), default=-1))
    return found


def _pool(name: str, template: Template, profile: DeviceProfile, seed: int) -> Iterator[Variant]:
    lanes = profile.hardware.lanes
    first, other = (
        space_for(task_at(name, template, n), profile.hardware, profile.threads) for n in (192, 240)
    )
    if not (first.rule.overlapping and other.rule.overlapping):
        raise ScheduleError(f"{name}: rule {first.rule.name} has no tiles")
    along = along_of(first, other)
    for width in _widths(lanes) if along.vector else (lanes,):
        hardware = replace(profile.hardware, vector_bits=profile.hardware.vector_bits * width // lanes)
        for vectors in _VECTORS if along.vector else (0,):
            for rows in _ROWS if along.rows else (0,):
                if width < lanes and (vectors != 1 or rows not in (0, 1, 4, 8)):
                    continue
                found = _constructed(name, template, profile, hardware, along, (rows, vectors), seed)
                if found is not None:
                    yield found


def _widths(lanes: int) -> list[int]:
    """The processor's vector and shorter ones of at least four elements."""
    widths = []
    while lanes >= 4:
        widths.append(lanes)
        lanes //= 2
    return widths


def _constructed(
    name: str,
    template: Template,
    profile: DeviceProfile,
    hardware: HardwareModel,
    along: Along,
    tile: tuple[int, int],
    seed: int,
) -> Variant | None:
    """The best program with a given register tile along the length; None if there is none."""
    rows, vectors = tile
    step = lcm(max(1, rows), max(1, vectors) * (hardware.lanes if along.vector else 1))
    length = step * max(1, round(192 / step))
    if along == _ROWS_ALONE and rows <= _FEW_ROWS:
        # At twice its rows a program that serves no fewer fetches its weights ahead.
        length = rows if 2 * rows < FETCHING_ROWS or rows == _FEW_ROWS else 2 * rows
    elif along.rows:
        length = lcm(length, rows * 8) if rows * 8 <= 256 else length
    space = space_for(task_at(name, template, length), hardware, profile.threads)
    if not space.rule.overlapping:
        return None
    held = _held(space, along, rows, vectors)
    if held is None:
        return None
    proposals = Gensor(options=_WALKS).propose(held, replace(profile, hardware=hardware), (), 1, seed)
    if not proposals:
        return None
    values = {key: int(value) for key, value in proposals[0].decisions}  # type: ignore[arg-type]
    elements = hardware.lanes * values["vectors"] if along.vector else 1
    row_tile = values["rows"] if along.rows else 1
    units = _units(name, template, hardware, profile.threads, along, values, (row_tile, elements))
    return Variant(proposals[0], hardware, along, row_tile, elements, units, max(row_tile, elements))


def _held(space: DesignSpace, along: Along, rows: int, vectors: int) -> DesignSpace | None:
    """The space with what overlapping tiles cannot leave open decided; None if nothing is left."""
    fixed: dict[str, int] = {}
    if along.rows:
        fixed["rows"] = rows
    if along.vector:
        fixed |= {"vectors": vectors, "panel": 1}
    if along.second:
        fixed |= {"rows2": 1, "block2": 1}
    if along.reduction:
        fixed |= {"unroll": 1, "window": 0}
    decisions = []
    for decision in space.decisions:
        choices = decision.choices
        if decision.name in fixed:
            choices = tuple(value for value in choices if value == fixed[decision.name])
        if not choices:
            return None
        decisions.append(replace(decision, choices=choices))
    return replace(space, decisions=tuple(decisions))


def _units(
    name: str,
    template: Template,
    hardware: HardwareModel,
    threads: int,
    along: Along,
    values: dict[str, int],
    tile: tuple[int, int],
) -> dict[int, float]:
    """Seconds of one tile at several lengths."""
    rows, vectors = tile
    step = lcm(rows, vectors)
    found: dict[int, float] = {}
    for scale in _SCALES:
        length = step * scale
        if length > 1024 and found:
            break
        space = space_for(task_at(name, template, length), hardware, threads)
        if not space.rule.overlapping:
            continue
        changed = dict(values)
        if along.rows:
            # As in the program: no more tiles in a block than there are, in blocks of the same number.
            tiles = length // rows
            changed["block"] = max(b for b in range(1, min(values["block"], tiles) + 1) if tiles % b == 0)
        found[length] = space.estimate_s(changed) / _tiles(along, rows, vectors, length)
    if not found:
        raise ScheduleError(f"{name}: no estimate for tiles of {rows} x {vectors}")
    return found


def applied(variant: Variant, name: str, template: Template, multiple: int) -> DesignSpace:
    """The design space of a variant at a multiple of its whole length, its decisions only, one thread."""
    length = variant.whole * multiple
    space = space_for(task_at(name, template, length), variant.hardware)
    return space.decided({key: int(value) for key, value in variant.candidate.decisions})  # type: ignore[arg-type]


__all__ = ["LARGEST_CHOICE", "Roles", "Variant", "applied", "best_of", "prod", "task_at", "variants_of"]
