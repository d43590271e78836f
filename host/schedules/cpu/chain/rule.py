"""Chains in bands of rows: each part is scheduled like a function of its own.

A 1x1 convolution, a depthwise one and perhaps another 1x1 convolution are computed for one band after the
other, so that what they hand each other stays in the cache of a core. With threads, bands are shared out: no
thread waits for another between the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import ClassVar, NamedTuple

from host.errors import ScheduleError
from host.schedules.api import CPU, Decision, Decisions, Rule, Sampler
from host.schedules.cpu.streams import shared_seconds
from host.schedules.cpu.tiled.rule import RULE as TILED
from host.schedules.cpu.tiled.rule import Tiled
from host.schedules.workload import Workload
from host.tensor_ir.bands import part_name
from targets import HardwareModel

_MOST_PARTS = 3
# Seconds of a part of a band beside its loops: views of its rows, and zeros at an edge.
_START_S = 1e-7


def _name(part: int, decision: str) -> str:
    return f"{part_name(part)}_{decision}"


class ChainInBands(Rule):
    """The decisions of each part's own rule, by the name of the part."""

    name = "chain"
    processor = CPU
    # The parts are programs of `tiled`. Both numbers only grow, so a change of either makes another sum.
    version = 1 + Tiled.version
    priority = 4
    constants = TILED.constants
    part_rules: ClassVar[Mapping[str, str]] = {_name(part, ""): TILED.name for part in range(_MOST_PARTS)}
    decisions = tuple(
        replace(kind, name=_name(part, kind.name)) for part in range(_MOST_PARTS) for kind in TILED.decisions
    )

    def matches(self, workload: Workload, hardware: HardwareModel) -> bool:
        """A chain; no other rule takes such a task."""
        return bool(workload.parts)

    def choices(self, workload: Workload, hardware: HardwareModel) -> Mapping[str, tuple[int, ...]]:
        """Those of each part.

        Raises:
            ScheduleError: a part is no register-blocked reduction.
        """
        found = {}
        for number, part in enumerate(workload.parts):
            if not TILED.matches(part, hardware):
                raise ScheduleError(f"the {part_name(number)} part of a chain is no tiled reduction")
            for name, values in TILED.choices(part, hardware).items():
                found[_name(number, name)] = values
        return found

    def parts(self, workload: Workload) -> list[tuple[str, Rule, Workload]]:
        """The functions of one band."""
        return [(_name(number, ""), TILED, part) for number, part in enumerate(workload.parts)]

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Every part is legal by itself."""
        splits = _splits(tuple(values))
        # A construction changes a decision of one part and leaves the others as they are.
        known = workload.anchor_stage.known("chain.legal", workload, hardware, splits)
        for number, (part, split) in enumerate(zip(workload.parts, splits, strict=False)):
            key = (number, split.of(values))
            if (found := known.get(key)) is None:
                found = known[key] = TILED.legal(part, hardware, split.own(key[1]))
            if not found:
                return False
        return True

    def apply(self, sampler: Sampler, workload: Workload, hardware: HardwareModel, threads: int) -> None:
        """Schedules each part, and shares the bands out to threads."""
        for part, own in _parts(workload, sampler.values):
            kinds = {kind.name: kind for kind in TILED.decisions}
            decisions = tuple(
                Decision(kinds[name], choices) for name, choices in TILED.choices(part, hardware).items()
            )
            TILED.apply(Sampler(sampler.schedule, decisions, own), part, hardware, 1)
        if threads > 1:
            schedule = sampler.schedule
            schedule.parallel(schedule.get_loops(schedule.get_sblock("band"))[0])

    def estimate_s(
        self, workload: Workload, hardware: HardwareModel, threads: int, values: Decisions
    ) -> float:
        """Estimated seconds of one call: the parts of a band by their rule, times the bands."""
        band_s = sum(_parts_s(workload, hardware, values))
        rounds = -(-workload.bands // threads)
        return shared_seconds(band_s * rounds * threads, hardware, threads)


class _Split(NamedTuple):
    """The decisions of one part among those of a chain.

    Attributes:
        names: as the part's own rule has them.
        of: takes their values out of those of the chain, in the order of the names.
    """

    names: tuple[str, ...]
    of: Callable[[Decisions], tuple[int, ...]]

    def own(self, key: tuple[int, ...]) -> dict[str, int]:
        """The decisions of the part's own rule with these values."""
        return dict(zip(self.names, key, strict=True))


@lru_cache(maxsize=64)
def _splits(names: tuple[str, ...]) -> tuple[_Split, ...]:
    """How the decisions of a chain with these names are those of its parts."""
    found = []
    for part in range(_MOST_PARTS):
        prefix = _name(part, "")
        whole = tuple(name for name in names if name.startswith(prefix))
        found.append(_Split(tuple(name[len(prefix) :] for name in whole), _getter(whole)))
    return tuple(found)


def _getter(names: tuple[str, ...]) -> Callable[[Decisions], tuple[int, ...]]:
    # Of one name, `itemgetter` returns no tuple.
    return itemgetter(*names) if len(names) > 1 else lambda values: tuple(values[name] for name in names)


def _parts(workload: Workload, values: Decisions) -> Iterator[tuple[Workload, dict[str, int]]]:
    """Each part with its own decisions."""
    for part, split in zip(workload.parts, _splits(tuple(values)), strict=False):
        yield part, split.own(split.of(values))


def _parts_s(workload: Workload, hardware: HardwareModel, values: Decisions) -> Iterator[float]:
    """Estimated seconds of each part of a band."""
    splits = _splits(tuple(values))
    known = workload.anchor_stage.known("chain.seconds", workload, hardware, splits)
    for number, (part, split) in enumerate(zip(workload.parts, splits, strict=False)):
        key = (number, split.of(values))
        if (found := known.get(key)) is None:
            found = known[key] = TILED.estimate_s(part, hardware, 1, split.own(key[1])) + _START_S
        yield found


RULE = ChainInBands()
