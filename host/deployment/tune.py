"""`--trials N`: measure proposed kernels on the device and keep the best of each task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.deployment.clock import StageClock
from host.deployment.compile import Plan, defects_as, one_line
from host.errors import BuildError, MeasureError, ScheduleError, SessionLost
from host.model import Candidate, DeviceProfile, LoweredModel, Measurement, Task
from host.records import Record, RecordStore
from host.records.store import profile_data

if TYPE_CHECKING:
    from host.measure.kernels import KernelRunner
    from host.transport import Device

# Below this a difference is noise, and the program that was constructed stays.
_GAIN = 0.98
_TIME_LIMIT_S = 60.0


def default_store() -> Path:
    """The user's records: `$XDG_DATA_HOME/edgetlm/records.sqlite`, else below `~/.local/share`."""
    base = os.environ.get("XDG_DATA_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share"
    return root / "edgetlm" / "records.sqlite"


def recall(plan: Plan, profile: DeviceProfile, path: Path) -> Plan:
    """Take the best measured program of earlier tunings wherever there is one."""
    if not path.is_file():
        return plan
    chosen = dict(plan.chosen)
    found: set[str] = set()
    data = profile_data(profile)
    with RecordStore(path) as store:
        for key in plan.chosen:
            best = store.best(key, data)
            if best is not None and best.candidate.rule == plan.spaces[key].rule.name:
                chosen[key] = best.candidate
                found.add(key)
    return replace(plan, chosen=chosen, from_database=frozenset(found))


def shares(lowered: LoweredModel, plan: Plan, trials: int) -> dict[str, int]:
    """How many of the measurements each task gets: by its share of the estimated time, two at least.

    A single measurement has nothing to be compared with, so where there are too few the tasks with the
    smallest shares get none.
    """
    costs = _costs(lowered, plan)
    taking = sorted(costs, key=lambda key: -costs[key])[: trials // 2]
    left = trials - 2 * len(taking)
    total = sum(costs[key] for key in taking)
    given = {key: 2 + int(left * costs[key] / total) for key in taking}
    for key in taking[: trials - sum(given.values())]:
        given[key] += 1
    return given


def _costs(lowered: LoweredModel, plan: Plan) -> dict[str, float]:
    """Estimated seconds of each task in one run of the model."""
    estimates = {
        task.workload_hash: task.weight * plan.chosen[task.workload_hash].estimate_s
        for task in lowered.tasks
        if task.workload_hash in plan.chosen
    }
    known = [estimate for estimate in estimates.values() if estimate > 0]
    # A recalled program whose proposer had no estimate counts as the average.
    mean = sum(known) / len(known) if known else 1.0
    return {key: estimate if estimate > 0 else mean for key, estimate in estimates.items()}


@dataclass
class Tuner:
    """Measures candidates of one model's tasks on one device.

    Attributes:
        device: where.
        profile: of the device.
        store: where every measurement is kept.
        folder: scratch.
        seed: of the proposals.
        origin: provenance of the records.
        clock: counts the stage and shows progress.
    """

    device: Device
    profile: DeviceProfile
    store: RecordStore
    folder: Path
    seed: int
    origin: Mapping[str, Any]
    clock: StageClock

    def improve(self, lowered: LoweredModel, plan: Plan, trials: int) -> Plan:
        """Spend `trials` measurements; what is measured is kept even if this is interrupted.

        Measurements of an earlier, interrupted run of the same command count, so that it resumes.

        Raises:
            DeviceError: the device went away.
        """
        from host.measure.kernels import KernelRunner

        given = shares(lowered, plan, trials)
        chosen = dict(plan.chosen)
        done = 0
        with (
            self.clock.stage("tune"),
            self.device.open_session("tvm", self.profile.threads, _TIME_LIMIT_S) as session,
            KernelRunner(session) as runner,
        ):
            for task in lowered.tasks:
                count = given.get(task.workload_hash, 0)
                if count:
                    chosen[task.workload_hash] = self._best(task, plan, count, runner, done, trials)
                    done += count
        recalled = frozenset(key for key in plan.from_database if chosen[key] == plan.chosen[key])
        return replace(plan, chosen=chosen, from_database=recalled)

    def _best(
        self, task: Task, plan: Plan, count: int, runner: KernelRunner, done: int, total: int
    ) -> Candidate:
        present = plan.chosen[task.workload_hash]
        measured: dict[Candidate, float] = {}
        for index, candidate in enumerate(self._candidates(task, plan, count)):
            measurement = self._measured(task, plan, candidate, runner)
            if measurement is not None:
                measured[candidate] = measurement.median_s
            self.clock.progress.advance(done + index + 1, total)
        if not measured:
            return present
        best = min(measured, key=lambda candidate: measured[candidate])
        before = measured.get(present)
        return present if before is not None and measured[best] > _GAIN * before else best

    def _candidates(self, task: Task, plan: Plan, count: int) -> Sequence[Candidate]:
        """The present program first, then the proposer's others."""
        from host.gensor import Gensor

        present = plan.chosen[task.workload_hash]
        space = plan.spaces[task.workload_hash]
        history = [
            (record.candidate, record.measurement)
            for record in self.store.history(task.workload_hash, profile_data(self.profile))
        ]
        with defects_as(ScheduleError, task.name):
            proposed = Gensor().propose(space, self.profile, history, count, self.seed)
        others = [one for one in proposed if one.decisions != present.decisions]
        return [present, *others][:count]

    def _measured(
        self, task: Task, plan: Plan, candidate: Candidate, runner: KernelRunner
    ) -> Measurement | None:
        """The kept or new measurement of a candidate; None where it does not build or run."""
        data = profile_data(self.profile)
        for record in self.store.history(task.workload_hash, data):
            if record.candidate.decisions == candidate.decisions and record.origin == self.origin:
                return record.measurement
        try:
            measurement = self._measure(task, plan, candidate, runner)
        except (ScheduleError, BuildError, MeasureError, SessionLost) as error:
            self.clock.progress.note(f"a candidate of {task.name} is left out: {one_line(error)}")
            return None
        self.store.append([Record(candidate, data, measurement, origin=dict(self.origin))])
        return measurement

    def _measure(self, task: Task, plan: Plan, candidate: Candidate, runner: KernelRunner) -> Measurement:
        from host.build import KernelCache, build_kernel_library, target_for
        from host.space import scheduled_function

        with defects_as(ScheduleError, task.name):
            function = scheduled_function(plan.spaces[task.workload_hash].apply(candidate))
        library = self.folder / "candidate.so"
        target = target_for(self.profile.board)
        build_kernel_library({task.name: function}, library, target, KernelCache())
        arguments = [
            (tuple(int(size) for size in parameter.shape), str(parameter.dtype))
            for parameter in task.function.params
        ]
        # In the model a kernel's weights are not in the cache that a loop over it would find them in.
        flush = 2 * self.profile.hardware.level("L2").size_bytes
        return runner.measure(library, task.name, arguments, repeat=9, flush_bytes=flush, max_s=2.0)
