"""The tasks of the held-out networks, and the selection of those that are searched."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from host.build import default_schedule
from host.errors import BuildError, MeasureError, ScheduleError, SessionLost
from host.gensor import Gensor
from host.importers import load_here as load
from host.lowering import lower
from host.model import DeviceProfile, Task
from host.schedules import scheduled_function, space_for
from host.schedules.analysis import analyse
from host.schedules.workload import Workload
from research.evaluation.bench import Bench

_PASSES = 3


@dataclass(frozen=True, eq=False)
class Network:
    """The tasks of a network with the time that each takes.

    Attributes:
        name: of the network.
        tasks: all tasks of the network.
        seconds: of one call of Gensor's program, by task's hash.
        chosen: the fewest tasks that cover enough of the time, the longest first.
        coverage: their share of the time.
        total_s: time of all tasks.
    """

    name: str
    tasks: tuple[Task, ...]
    seconds: Mapping[str, float]
    chosen: tuple[Task, ...]
    coverage: float
    total_s: float

    def share(self, task: Task) -> float:
        """Share of the network's time that a task has."""
        return task.weight * self.seconds[task.workload_hash] / self.total_s


def tasks_of(path: Path, profile: DeviceProfile) -> tuple[Task, ...]:
    """The tasks of a model file: direct convolutions only, so that both sides have the same functions."""
    return lower(load(path, golden_cases=1), profile.board, approximate=False).tasks


def network_of(name: str, tasks: Sequence[Task], bench: Bench, known: Path, coverage: float) -> Network:
    """Measure every task once and choose.

    Args:
        name: of the network.
        tasks: all tasks of the network.
        bench: for the measurements.
        known: file of earlier measurements, without which another run could choose other tasks.
        coverage: share of the time to reach.
    """
    seconds: dict[str, float] = json.loads(known.read_text()) if known.is_file() else {}
    if set(seconds) != {task.workload_hash for task in tasks}:
        seconds = {task.workload_hash: constructed_seconds(task, bench) for task in tasks}
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(seconds) + "\n")
    chosen, share = choose(tasks, seconds, coverage)
    total = sum(task.weight * seconds[task.workload_hash] for task in tasks)
    return Network(name, tuple(tasks), seconds, chosen, share, total)


def choose(
    tasks: Sequence[Task], seconds: Mapping[str, float], coverage: float
) -> tuple[tuple[Task, ...], float]:
    """The fewest tasks with at least this share of the time, and their share."""
    cost = {task.workload_hash: task.weight * seconds[task.workload_hash] for task in tasks}
    total = sum(cost.values())
    chosen: list[Task] = []
    share = 0.0
    for task in sorted(tasks, key=lambda one: -cost[one.workload_hash]):
        if share >= coverage:
            break
        chosen.append(task)
        share += cost[task.workload_hash] / total
    return tuple(chosen), share


def constructed_seconds(task: Task, bench: Bench) -> float:
    """Seconds of one call of Gensor's program, or of the default schedule if no rule matches the task.

    A task that cannot be run alone has 0 seconds, for example a table look-up, for which random numbers are
    no indices.
    """
    try:
        space = space_for(task, bench.profile.hardware, bench.profile.threads)
        [candidate] = Gensor().propose(space, bench.profile, (), 1, 0)
        function = scheduled_function(space.apply(candidate))
    except ScheduleError:
        function = default_schedule(task.function)
    try:
        built = bench.build(function)
        return min(bench.time(task, built) for _ in range(_PASSES))
    except (BuildError, MeasureError, SessionLost):
        return 0.0


def kind_of(task: Task) -> str:
    """The kind of a task's anchor: "convolution", "depthwise", "matmul", "batched_matmul", "gemv", ..."""
    try:
        return kind_of_workload(analyse(task.function))
    except ScheduleError:
        return "other"


def kind_of_workload(workload: Workload) -> str:
    """See `kind_of`."""
    anchor = workload.anchor_stage
    if anchor.kind != "contraction":
        return anchor.kind
    reads = [access for access in anchor.reads if access.elements > 1][:2]
    moving = [position for position, axis in enumerate(anchor.axes) if axis.extent > 1]
    reduced = [position for position in moving if anchor.axes[position].reduce]
    shared = [
        position
        for position in moving
        if position not in reduced and all(read.strides[position] for read in reads)
    ]
    if len(reduced) > 1:
        return "depthwise" if shared else "convolution"
    if shared:
        return "batched_matmul"
    own = [any(read.strides[p] and p not in reduced for p in moving) for read in reads]
    return "matmul" if all(own) else "gemv"
