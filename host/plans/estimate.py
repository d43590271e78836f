"""The estimate of a plan: its kernels by their best programs, what they hand each other, and their starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from device_agent.contract.manifest import tensor_bytes
from host.errors import ScheduleError
from host.gensor import Gensor
from host.model import DeviceProfile, LoweredModel, Task
from host.schedules import space_for

# Seconds of a call of a kernel by the executor: an indirect call and its checks.
_CALL_S = 3e-7


@dataclass(frozen=True)
class PlanEstimate:
    """Estimated seconds of one run.

    Attributes:
        kernels_s: the best program of each kernel by its rule's estimate, times its calls.
        traffic_s: what one kernel writes and another reads, from the memory level that holds it.
        calls_s: of starting kernels, and threads where there are several.
    """

    kernels_s: float
    traffic_s: float
    calls_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.kernels_s + self.traffic_s + self.calls_s


@dataclass(eq=False)
class PlanEstimator:
    """Estimates plans of models for one device; a kernel that plans share is estimated once.

    Attributes:
        profile: the device.
        seed: of Gensor's walks, so that they find the programs that a deployment builds.
    """

    profile: DeviceProfile
    seed: int = 0
    _seconds: dict[str, float] = field(default_factory=dict)

    @property
    def kernels(self) -> int:
        """How many kernels were estimated."""
        return len(self._seconds)

    def estimate(self, lowered: LoweredModel) -> PlanEstimate:
        """The estimate of a model as it was lowered."""
        tasks = {task.name: task for task in lowered.tasks}
        kernels_s = math.fsum(task.weight * self.kernel_s(task) for task in lowered.tasks)
        traffic_s = 0.0
        calls = lowered.calls.calls
        for call in calls:
            for number in call.reads:
                if number >= 0:
                    size = result_bytes(tasks[calls[number].kernel])
                    traffic_s += 2 * size / self.profile.hardware.level_of(size).bandwidth_bytes_per_s
        launch_s = self.profile.hardware.parallel_launch_s if self.profile.threads > 1 else 0.0
        return PlanEstimate(kernels_s, traffic_s, len(calls) * (_CALL_S + launch_s))

    def kernel_s(self, task: Task) -> float:
        """Seconds of one call of a kernel by the program that Gensor constructs."""
        key = task.workload_hash
        if key not in self._seconds:
            self._seconds[key] = self._kernel_s(task)
        return self._seconds[key]

    def _kernel_s(self, task: Task) -> float:
        profile = self.profile
        try:
            space = space_for(task, profile.hardware, profile.threads)
            found = Gensor().propose(space, profile, (), 1, self.seed)
        except ScheduleError:
            found = []
        if found and math.isfinite(found[0].estimate_s):
            return found[0].estimate_s
        # Without a program it runs an element at a time, an operation in each cycle.
        return max(task.flops, result_bytes(task)) / profile.hardware.frequency_hz


def result_bytes(task: Task) -> int:
    """Bytes of what a kernel writes: its last argument."""
    function = task.function
    buffer = function.params[-1]
    return tensor_bytes([int(extent) for extent in buffer.shape], str(buffer.dtype))
