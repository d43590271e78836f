"""Which program of a task its records say to take, by time or by another cost.

The cost of a program is seconds x (watts / reference watts)^a, with a = 0 for latency
(`host.options.objective`). Watts are those of the windows in which the program was called in a loop, and
seconds those of the record: inside of a model a call takes longer than in a loop.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from host.model import Energy, comparable
from host.records.origin import MODEL
from host.records.record import Record, of_one_kind

# A program so close to the best one known is as good: the difference is noise.
CLOSE = 1.02


@dataclass(frozen=True)
class MeasuredCost:
    """The mean cost of a program of which records are known.

    Attributes:
        record: the first one of the program.
        seconds: of one call, the mean of its records.
        cost: in seconds at the reference power.
        count: of its records.
    """

    record: Record
    seconds: float
    cost: float
    count: int


def watts_of(records: Sequence[Record]) -> list[float | None]:
    """The mean watts of each record's windows of energy; None where there are none that count.

    Watts of a package and of a whole board are different things: of several sensors, that of the last record
    counts. A record without a time that counts has no watts either.
    """
    known = [
        one.measurement.energy if has_watts(one) and one.median_s is not None else None for one in records
    ]
    last = next((one for one in reversed(known) if one is not None), None)
    return [
        one.mean_w if one is not None and last is not None and comparable(one, last) is None else None
        for one in known
    ]


def has_watts(record: Record) -> bool:
    """Whether a record says what its program takes out of the board; joules alone do not."""
    energy = record.measurement.energy
    return energy.gross_j is not None and energy.mean_w is not None and energy.mean_w > 0


def relative_watts(records: Sequence[Record]) -> list[float | None]:
    """The watts of the records of a board over the median of their sensor; None where there are none.

    Of several sensors that have measured a task, that of the last record counts, as in `measured_costs`.
    """
    by_task: dict[str, list[int]] = defaultdict(list)
    for position, one in enumerate(records):
        by_task[one.candidate.workload_hash].append(position)
    by_sensor: list[tuple[Energy, dict[int, float]]] = []
    for positions in by_task.values():
        watts = watts_of([records[one] for one in positions])
        own = {place: power for place, power in zip(positions, watts, strict=True) if power is not None}
        if not own:
            continue
        energy = records[max(own)].measurement.energy
        known = next((one for sensor, one in by_sensor if comparable(sensor, energy) is None), None)
        if known is None:
            by_sensor.append((energy, own))
        else:
            known.update(own)
    found: list[float | None] = [None] * len(records)
    for _, own in by_sensor:
        reference_w = statistics.median(own.values())
        for position, power in own.items():
            found[position] = power / reference_w
    return found


def measured_costs(
    records: Iterable[Record], exponent: float = 0.0, reference_w: float = 1.0
) -> list[MeasuredCost]:
    """The programs of one task with their costs, in the order of the first record of each.

    A program whose watts are not known has the most watts that any other of the task has: it may be taken
    where it is better even so, and no program is the best because nobody has measured its power.

    Args:
        records: of the task, oldest first. Those without a time that counts are left out.
        exponent: of watts in the cost.
        reference_w: at which a second costs a second.
    """
    counted = of_one_kind(one for one in records if one.median_s is not None)
    programs: dict[object, list[tuple[Record, float | None]]] = {}
    watts = watts_of(counted) if exponent else [None] * len(counted)
    for record, power in zip(counted, watts, strict=True):
        programs.setdefault((record.candidate.rule, record.candidate.decisions), []).append((record, power))
    means = [_mean(power for _, power in same if power is not None) for same in programs.values()]
    most = max((one for one in means if one is not None), default=reference_w)
    found = []
    for same, mean_w in zip(programs.values(), means, strict=True):
        seconds = statistics.fmean(one.median_s for one, _ in same if one.median_s is not None)
        factor = ((most if mean_w is None else mean_w) / reference_w) ** exponent
        found.append(MeasuredCost(same[0][0], seconds, seconds * factor, len(same)))
    return found


def comparable_costs(records: Iterable[Record], exponent: float = 0.0) -> list[MeasuredCost]:
    """The programs of one task whose costs can be compared.

    A program that was measured several times has the mean of its costs. The best of many programs that were
    measured once inside of a model is partly the luckiest. So, once a program was measured again, only such
    programs count, and the one that was measured first, which the others are compared with in every job.

    Args:
        records: oldest first. Those without a time that counts are left out.
        exponent: of watts in the cost.
    """
    programs = measured_costs(records, exponent)
    inside = any(one.record.origin.measured_in == MODEL for one in programs)
    if inside and any(one.count > 1 for one in programs):
        programs = [one for number, one in enumerate(programs) if number == 0 or one.count > 1]
    return programs


def unconfirmed_program(records: Iterable[Record], exponent: float = 0.0) -> Record | None:
    """The record of the best program of one task, if that was measured once and is not the one to take.

    None where the program that was measured first, or one that was measured again, is within 2% of it.

    Args:
        records: of the task inside of a model, oldest first.
        exponent: of watts in the cost.
    """
    programs = measured_costs(records, exponent)
    settled = [one.cost for number, one in enumerate(programs) if number == 0 or one.count > 1]
    best = min(programs, key=lambda one: one.cost, default=None)
    if best is None or best.count != 1 or best is programs[0] or min(settled) <= CLOSE * best.cost:
        return None
    return best.record


def best_program(records: Iterable[Record], exponent: float = 0.0) -> tuple[Record, float] | None:
    """Of the programs of one task, the one to take, with its seconds; None if none ran.

    That is the first within 2% of the one with the least cost, as less is noise.

    Args:
        records: of the task, oldest first.
        exponent: of watts in the cost; 0 takes the fastest.
    """
    programs = comparable_costs(records, exponent)
    least = min((one.cost for one in programs), default=math.inf)
    return next(((one.record, one.seconds) for one in programs if one.cost <= CLOSE * least), None)


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.fmean(known) if known else None
