"""Which kernels of a model threads share, and which the calling thread computes alone.

The estimate of a kernel has the start of its parallel loop, and what is handed over inside of it. What
sharing does to the kernels around it only the model says: each thread leaves its part of a result in its own
core's cache, and whoever reads the other parts, or writes over them later, waits for them line by line. In a
chain of short kernels this is more than a second thread saves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from host.model import LoweredModel
from host.plans.estimate import result_bytes
from targets import HardwareModel

# Starts of a parallel loop that one is charged for beside that of its estimate, which is the time of loops
# that follow each other at once: the other threads come later to a loop behind other work, and the slowest
# decides. 0.85 us back to back; behind 10 and 50 us of other work 0.9 and 1.4 us in the median, 1.5 and 3.6
# in one of ten (a Xeon of the fifth generation, two threads).
_LATE_STARTS = 1.0
# Share of the rate of the last cache at which a core gets lines that another one has written, and owns them
# again to write over them: 6 ns a line each, against 2.5 ns (as above, 8 to 64 KB).
_HANDED_OVER = 0.2
# A kernel that gains so many times more than sharing could cost is shared, whatever others do.
_SETTLED = 2.0
# Where no kernel is settled, sharing has to promise so much of the whole run: other programs that take a core
# for a moment hold up a loop, and not a single thread.
_WORTH = 1.1


@dataclass(frozen=True)
class Seconds:
    """Of one call of a kernel: shared by all threads, and by the calling thread alone."""

    shared_s: float
    alone_s: float

    @property
    def gain_s(self) -> float:
        """What sharing saves by the estimate of the kernel."""
        return self.alone_s - self.shared_s


class Sharing:
    """What sharing kernels costs the others that they hand results to, in one run of a model.

    Args:
        lowered: the model; kernels that only other entries call have no neighbours.
        hardware: the processor.
        threads: that share a kernel.
    """

    def __init__(self, lowered: LoweredModel, hardware: HardwareModel, threads: int) -> None:
        self._late_s = _LATE_STARTS * hardware.parallel_launch_s
        self._others = 1.0 - 1.0 / threads
        self.calls = {task.name: task.weight for task in lowered.tasks}
        # By who makes a result and who reads it: seconds of handing over all of it, in all calls.
        self._handed: dict[tuple[str, str], float] = {}
        sizes = {task.name: result_bytes(task) for task in lowered.tasks}
        calls = lowered.calls.calls
        for call in calls:
            for number in call.reads:
                maker = calls[number].kernel if number >= 0 else ""
                if maker in sizes and call.kernel in sizes:
                    before = self._handed.get((maker, call.kernel), 0.0)
                    self._handed[maker, call.kernel] = before + _handed_over_s(sizes[maker], hardware)
        self._edges: dict[str, list[tuple[str, str]]] = {name: [] for name in self.calls}
        for edge in self._handed:
            for name in set(edge):
                self._edges[name].append(edge)

    def edges(self, name: str | None = None) -> Collection[tuple[str, str]]:
        """Makers and readers of results; of one kernel, or all."""
        return self._handed if name is None else self._edges[name]

    def is_settled(self, name: str, gain_s: float) -> bool:
        """Whether a kernel is shared whatever is decided of the others.

        Args:
            name: of the kernel.
            gain_s: what sharing saves by its own estimate, in one call.
        """
        handed = sum(self._handed[edge] for edge in self._edges[name]) / max(1, self.calls[name])
        return gain_s >= _SETTLED * (self._late_s + handed)

    def alone(
        self,
        open_kernels: Mapping[str, Seconds],
        shared: Collection[str],
        reading_all: Collection[str],
        beside_s: float = 0.0,
    ) -> frozenset[str]:
        """Those of the open kernels that the calling thread computes alone.

        The least cost that single changes lead to, from all of them shared and from none.

        Args:
            open_kernels: by name; all others are decided.
            shared: names of those of the others that are shared.
            reading_all: names of kernels of which each thread reads all inputs where they are shared.
            beside_s: seconds of a run in kernels that are decided.
        """
        found = []
        for begin in (frozenset[str](), frozenset(open_kernels)):
            state = _State(self, dict(open_kernels), {*shared, *open_kernels} - begin, set(reading_all))
            # Each change takes less time in all, so that there is a last one.
            while sum(map(state.improve, open_kernels)):
                pass
            found.append((state.cost_s(), frozenset(open_kernels) - state.shared))
        least_s, alone = min(found, key=lambda one: one[0])
        if not shared:
            alone_s = sum(self.calls[name] * one.alone_s for name, one in open_kernels.items())
            if beside_s + alone_s < _WORTH * (beside_s + least_s):
                return frozenset(open_kernels)
        return alone

    def own_s(self, name: str, seconds: Seconds, shared: bool) -> float:
        """Seconds of all calls of a kernel by itself."""
        return self.calls[name] * (seconds.shared_s + self._late_s if shared else seconds.alone_s)

    def handed_s(self, edge: tuple[str, str], shared: Collection[str], reading_all: Collection[str]) -> float:
        """Seconds of handing results from one kernel to another between cores."""
        maker, reader = edge
        if reader in shared:
            if reader in reading_all:
                return self._handed[edge] * (self._others if maker in shared else 1.0)
            # Both are divided alike, as a rule: each thread reads what it has written.
            return 0.0 if maker in shared else self._handed[edge] * self._others
        return self._handed[edge] * self._others if maker in shared else 0.0


@dataclass
class _State:
    """Kernels that are shared so far, while those that are open are decided."""

    sharing: Sharing
    open_kernels: dict[str, Seconds]
    shared: set[str]
    reading_all: set[str]

    def improve(self, name: str) -> bool:
        """Change how an open kernel is computed, if that takes less time in all."""
        before = self._around_s(name)
        self.shared ^= {name}
        # Where both take as long, nothing is changed back and forth.
        if self._around_s(name) < before * (1.0 - 1e-9):
            return True
        self.shared ^= {name}
        return False

    def cost_s(self) -> float:
        """Seconds of the open kernels and of everything that is handed over."""
        own = sum(
            self.sharing.own_s(name, one, name in self.shared) for name, one in self.open_kernels.items()
        )
        handed = sum(
            self.sharing.handed_s(edge, self.shared, self.reading_all) for edge in self.sharing.edges()
        )
        return own + handed

    def _around_s(self, name: str) -> float:
        """The part of the cost that a kernel has a part in."""
        own = self.sharing.own_s(name, self.open_kernels[name], name in self.shared)
        edges = self.sharing.edges(name)
        return own + sum(self.sharing.handed_s(edge, self.shared, self.reading_all) for edge in edges)


def _handed_over_s(size_bytes: int, hardware: HardwareModel) -> float:
    """Seconds in which all of a result comes from another core.

    Of a result that the first cache does not hold, what is beyond is away from the core that made it anyway.
    """
    size = min(size_bytes, hardware.levels[0].size_bytes)
    return size / (_HANDED_OVER * hardware.levels[-2].bandwidth_bytes_per_s)
