"""Programs for several threads, kept back until it is decided which kernels of a model are shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property

from host.gensor import Gensor
from host.model import Candidate, DeviceProfile, LoweredModel, Task
from host.plans.sharing import Seconds, Sharing
from host.schedules.api import PARALLEL
from host.schedules.design import DesignSpace
from host.schedules.workload import Stage

# Products of no more rows are divided by columns, so that each thread reads its part of the weights alone.
_FEW_ROWS = 8
# A program as it is to be built.
Finished = Callable[[Task, DesignSpace, Candidate], Candidate]


class SharedKernels:
    """Keeps back the programs whose threads could cost other kernels more than they save.

    Args:
        lowered: the model.
        profile: of the device.
        seed: of Gensor's walks.
    """

    def __init__(self, lowered: LoweredModel, profile: DeviceProfile, seed: int) -> None:
        self._lowered, self._profile, self._seed = lowered, profile, seed
        self._shared: set[str] = set()
        self._reading_all: set[str] = set()
        self._alone_s = 0.0
        self._open: dict[str, tuple[Task, DesignSpace, Candidate, Seconds]] = {}

    def keeps(self, task: Task, space: DesignSpace, candidate: Candidate) -> bool:
        """Whether a program is kept back; the others are final.

        Args:
            task: of the model.
            space: of the task.
            candidate: the best program by the estimate.
        """
        if not is_shared(candidate):
            self._alone_s += task.weight * candidate.estimate_s
            return False
        if _reads_all(space.workload.anchor_stage):
            self._reading_all.add(task.name)
        gain_s = seconds_both_ways(space, candidate).gain_s
        settled = self._sharing.is_settled(task.name, gain_s)
        best = None if settled else program_of_one_thread(space, self._profile, self._seed)
        if best is None:
            self._shared.add(task.name)
            return False
        self._open[task.name] = task, space, best, Seconds(candidate.estimate_s, best.estimate_s)
        return True

    def decided(self, finished: Finished) -> Iterator[tuple[Task, Candidate | None]]:
        """The tasks whose programs were kept back, each with the program that takes its place, if one does.

        Args:
            finished: makes of a program what is built.
        """
        if not self._open:
            return
        seconds = {name: one for name, (_, _, _, one) in self._open.items()}
        alone = self._sharing.alone(seconds, self._shared, self._reading_all, self._alone_s)
        for name, (task, space, best, _) in self._open.items():
            yield task, finished(task, space, best) if name in alone else None

    @cached_property
    def _sharing(self) -> Sharing:
        """Only asked for where there are several threads of a CPU."""
        return Sharing(self._lowered, self._profile.hardware, self._profile.threads)


def _reads_all(anchor: Stage) -> bool:
    """Whether each of the threads that share a kernel reads all of its inputs beside the weights."""
    rows = math.prod(anchor.axes[axis].extent for axis in anchor.spatial[:-1])
    return anchor.kind == "contraction" and rows <= _FEW_ROWS


def is_shared(candidate: Candidate) -> bool:
    """Whether several threads compute a program."""
    return int(dict(candidate.decisions).get(PARALLEL.name, 1)) > 1  # type: ignore[arg-type]


def seconds_both_ways(space: DesignSpace, candidate: Candidate) -> Seconds:
    """Estimated seconds of a program as it is, and with the same decisions for one thread.

    Infinite for one thread where there is no such program.
    """
    values = {name: int(value) for name, value in candidate.decisions if not isinstance(value, tuple)}
    seconds = space.estimate_s(values)
    if not is_shared(candidate):
        return Seconds(seconds, seconds)
    alone = {**values, PARALLEL.name: 1}
    return Seconds(seconds, space.estimate_s(alone) if space.legal(alone) else math.inf)


def program_of_one_thread(space: DesignSpace, profile: DeviceProfile, seed: int) -> Candidate | None:
    """The best program by the estimate of those that the calling thread computes alone, if there are any.

    Args:
        space: of a task, for several threads.
        profile: of the device.
        seed: of Gensor's walks.
    """
    alone = space.fixed({PARALLEL.name: 1})
    if alone is None:
        return None
    return next(iter(Gensor().propose(alone, profile, (), 1, seed)), None)
