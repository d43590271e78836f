"""Chains in bands of rows: each part is scheduled like a function of its own.

A 1x1 convolution, a depthwise one and perhaps another 1x1 convolution are computed for one band after the
other, so that what they hand each other stays in the cache of a core. With threads, bands are shared out: no
thread waits for another between the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from host.errors import ScheduleError
from host.schedules.api import CPU, Decision, Decisions, Rule, Sampler
from host.schedules.cpu.streams import shared_seconds
from host.schedules.cpu.tiled.rule import RULE as TILED
from host.schedules.workload import Workload
from host.tensor_ir.bands import part_name
from targets import HardwareModel

_MOST_PARTS = 3
# Of what this rule adds to the programs of its parts.
_OWN_VERSION = 1
# Seconds of a part of a band beside its loops: views of its rows, and zeros at an edge.
_START_S = 1e-7


def _name(part: int, decision: str) -> str:
    return f"{part_name(part)}_{decision}"


class ChainInBands(Rule):
    """The decisions of each part's own rule, by the name of the part."""

    name = "chain"
    processor = CPU
    # The parts are programs of `tiled`. Both numbers only grow, so a change of either makes another sum.
    version = _OWN_VERSION + TILED.version
    priority = 4
    constants = TILED.constants
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

    def legal(self, workload: Workload, hardware: HardwareModel, values: Decisions) -> bool:
        """Every part is legal by itself."""
        return all(TILED.legal(part, hardware, own) for part, own in _parts(workload, values))

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
        band_s = sum(
            TILED.estimate_s(part, hardware, 1, own) + _START_S for part, own in _parts(workload, values)
        )
        rounds = -(-workload.bands // threads)
        return shared_seconds(band_s * rounds * threads, hardware, threads)


def _parts(workload: Workload, values: Decisions) -> Iterator[tuple[Workload, dict[str, int]]]:
    """Each part with its own decisions."""
    for number, part in enumerate(workload.parts):
        prefix = _name(number, "")
        yield part, {name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)}


RULE = ChainInBands()
