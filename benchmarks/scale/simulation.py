"""From one board to 100,000, with the costs that were measured: `python -m benchmarks.scale --simulate`.

A simulation of events in the product's queue of jobs (`host.tuning.runners.job`): boards take jobs, measure
for a while, and come back; how long differs by up to `_SPREAD`, or they would come back in the order in which
they began, one by one, for ever. A head serves one call at a time, and the database one record at a time for
each of its cores. What a head and the database need for a record is what `--many` measured, and what a record
takes on the disk is that of `--records`. Boards are divided between as many heads as keep each below a load
of `_LOAD`. The figures are those of the steady time: at the start, a head serves all its boards at once.

    heads               commands that use the boards
    jobs_per_s          measurements a second
    idle_share          of the boards' time: they wait for their head
    queue_us            processor time of the product's queue by job, in this simulation
    database_load       of one core of the database; above its number of cores records wait
    wire_bytes_per_s    of heads
    leases_per_s        statements that renew leases: one of each head, for all its boards
    days_to_billion     until there are 10^9 records
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from host.leases import RENEW_S
from host.tuning.runners.job import JobQueue
from host.tuning.runners.runner import Outcome, Program

_BOARDS = (1, 10, 100, 1_000, 10_000, 100_000)
# Of a real measurement: linked, sent, loaded, nine times of a kernel, and the pause before.
MEASUREMENT_S = 3.0
# Heads are added above this share of a core of the command.
_LOAD = 0.7
_ROUNDS = 12
# Of the length of a measurement, up and down.
_SPREAD = 0.2
_BILLION = 10**9


@dataclass(frozen=True)
class Costs:
    """Of one measurement.

    Attributes:
        head_s: processor time of the command.
        database_s: of the server.
        wire_bytes: of all messages.
        record_bytes: in the database.
    """

    head_s: float
    database_s: float
    wire_bytes: float
    record_bytes: float


def costs_of(many: Mapping[str, Any], records: Mapping[str, Any]) -> Costs:
    """The costs that two results show: those of `--many` and of `--records`."""
    return Costs(
        many["command_cpu_ms"] / 1e3,
        many["database_cpu_ms"] / 1e3,
        many["wire_bytes"],
        records["bytes_per_record"]["database"],
    )


def figures_of(costs: Costs) -> dict[str, Any]:
    """The figures of each number of boards; see the docstring of the module."""
    return {
        "measurement_s": MEASUREMENT_S,
        "head_ms": 1e3 * costs.head_s,
        "database_ms": 1e3 * costs.database_s,
        "boards_of_a_head": boards_of_a_head(costs),
        "billion_bytes": _BILLION * costs.record_bytes,
        "fleets": [fleet(boards, costs) for boards in _BOARDS],
    }


def boards_of_a_head(costs: Costs) -> int:
    """The boards that one head keeps busy below the load of `_LOAD`."""
    return max(1, round(_LOAD * MEASUREMENT_S / costs.head_s))


def fleet(boards: int, costs: Costs) -> dict[str, Any]:
    """The figures of a number of boards."""
    heads = -(-boards // boards_of_a_head(costs))
    # Heads share nothing but the database: one with the most boards stands for all.
    run = Head(-(-boards // heads), costs.head_s)
    rate = run.rate() * boards / run.boards
    return {
        "boards": boards,
        "heads": heads,
        "jobs_per_s": rate,
        "idle_share": run.idle_share(),
        "queue_us": run.queue_us,
        "database_load": rate * costs.database_s,
        "wire_bytes_per_s": rate * costs.wire_bytes,
        "leases_per_s": heads / RENEW_S,
        "bytes_per_day": rate * costs.record_bytes * 86400,
        "days_to_billion": _BILLION / rate / 86400,
    }


class Head:
    """Boards of one command, for some rounds of measurements.

    Args:
        boards: number of them.
        serving_s: time that the command needs for a measurement.
        rounds: measurements of each board.

    Attributes:
        boards: as given.
        measured: by each board.
        queue_us: processor time of the queue by job.
    """

    def __init__(self, boards: int, serving_s: float, rounds: int = _ROUNDS) -> None:
        self.boards = boards
        self.measured = [0] * boards
        self._measured: list[tuple[float, float]] = []
        begin = time.process_time()
        self._run(serving_s, rounds)
        self.queue_us = (time.process_time() - begin) / (boards * rounds) * 1e6

    def _run(self, serving_s: float, rounds: int) -> None:
        queue = JobQueue()
        program = cast("Program", SimpleNamespace(built=b"", task=SimpleNamespace(name="kernel")))
        names = [f"sim-{number}" for number in range(self.boards)]
        free = [(0.0, number) for number in range(self.boards)]
        generator = random.Random(self.boards)
        served = 0.0
        left = self.boards * rounds
        while left:
            now, number = heapq.heappop(free)
            with queue.changed:
                if not queue.waiting:
                    queue.put([(program,)] * self.boards, lambda: True)
                job = queue.take(names[number], alone=False)
                assert job is not None
                # The head takes one after the other; the board measures meanwhile.
                served = max(served, now) + serving_s
                queue.finish(job, names[number], [Outcome(program, None, "", names[number])])
                queue.pop_outcome()
            end = served + MEASUREMENT_S * generator.uniform(1.0 - _SPREAD, 1.0 + _SPREAD)
            self._measured.append((served, end))
            self.measured[number] += 1
            heapq.heappush(free, (end, number))
            left -= 1

    def _steady(self) -> tuple[float, float]:
        """From when every board was to have begun twice, until nothing is left to begin."""
        begins = sorted(begin for begin, _ in self._measured)
        return begins[2 * self.boards - 1], begins[-1]

    def rate(self) -> float:
        """Measurements a second, while it is steady."""
        return self.boards * (1.0 - self.idle_share()) / MEASUREMENT_S

    def idle_share(self) -> float:
        """Of the boards' time, while it is steady."""
        first, last = self._steady()
        busy = sum(max(0.0, min(end, last) - max(begin, first)) for begin, end in self._measured)
        return max(0.0, 1.0 - busy / (self.boards * (last - first)))
