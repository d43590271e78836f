"""From an imported model to a library: lower, propose, build."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from host.deployment.clock import StageClock
from host.deployment.result import TaskOutcome
from host.errors import EdgeError, ScheduleError
from host.model import Candidate, DeviceProfile, ImportedModel, LoweredModel, Task

if TYPE_CHECKING:
    import tvm

# What makes a candidate for each task: the chosen one by workload hash, tasks without one left out.
Chosen = Mapping[str, Candidate]


@dataclass(frozen=True, eq=False)
class Compiled:
    """A model as a library.

    Attributes:
        lowered: the module without its parameters.
        parameters: what the library reads at run time, in order.
        library: the shared library.
        tasks: who made each kernel.
    """

    lowered: LoweredModel
    parameters: tuple[np.ndarray, ...]
    library: Path
    tasks: tuple[TaskOutcome, ...]

    def without_parameters(self) -> Compiled:
        """The same with its parameters let go, once they are written to the bundle."""
        return replace(self, parameters=())


def lower_model(model: ImportedModel, profile: DeviceProfile, clock: StageClock) -> LoweredModel:
    """Lower an imported model for one device.

    Raises:
        ImportFailed: the compiler cannot express the model.
        LoweringError: it has no lowering on this target.
    """
    from host.lowering import lower

    with clock.stage("lower"):
        return lower(model, profile.board)


def propose(
    lowered: LoweredModel, profile: DeviceProfile, seed: int, clock: StageClock
) -> tuple[dict[str, Candidate], dict[str, str]]:
    """One program per task, made without measuring.

    Returns:
        The candidate of each task by workload hash, and for tasks without one the reason.
    """
    from host.gensor import Gensor
    from host.space import space_for

    proposer = Gensor()
    chosen: dict[str, Candidate] = {}
    reasons: dict[str, str] = {}
    with clock.stage("propose"):
        for index, task in enumerate(lowered.tasks):
            try:
                space = space_for(task, profile.hardware)
                candidates = proposer.propose(task, profile, space, (), 1, seed)
            except ScheduleError as error:
                reasons[task.workload_hash] = str(error)
                candidates = []
            if candidates:
                chosen[task.workload_hash] = candidates[0]
            else:
                reasons.setdefault(task.workload_hash, "no rule of the design space takes it")
            clock.progress.advance(index + 1, len(lowered.tasks))
    return chosen, reasons


def build(
    lowered: LoweredModel,
    profile: DeviceProfile,
    chosen: Chosen,
    reasons: Mapping[str, str],
    library: Path,
    clock: StageClock,
) -> Compiled:
    """Compile every kernel and link the model.

    Raises:
        BuildError: a kernel does not compile or linking fails.
    """
    from host.build import KernelCache, build_model

    with clock.stage("build"):
        kernels, failed = _scheduled(lowered.tasks, profile, chosen)
        stats = build_model(
            lowered,
            kernels,
            library,
            lambda done, total, _: clock.progress.advance(done, total),
            lanes=profile.hardware.lanes,
            cache=KernelCache(),
        )
    tasks = _outcomes(lowered.tasks, chosen, {**reasons, **failed}, set(stats.defaulted))
    return Compiled(replace(lowered, parameters=()), lowered.parameters, library, tasks)


def _scheduled(
    tasks: Sequence[Task], profile: DeviceProfile, chosen: Chosen
) -> tuple[dict[str, tvm.tirx.PrimFunc], dict[str, str]]:
    """Scheduled functions by name, and the reason for each candidate that did not apply."""
    from host.space import space_for

    kernels: dict[str, tvm.tirx.PrimFunc] = {}
    failed: dict[str, str] = {}
    for task in tasks:
        candidate = chosen.get(task.workload_hash)
        if candidate is None or candidate.proposer == "default":
            continue
        try:
            schedule = space_for(task, profile.hardware).apply(candidate)
        except ScheduleError as error:
            failed[task.workload_hash] = str(error)
            continue
        kernels[task.name] = schedule.mod["main"]
    return kernels, failed


def _outcomes(
    tasks: Sequence[Task], chosen: Chosen, reasons: Mapping[str, str], defaulted: set[str]
) -> tuple[TaskOutcome, ...]:
    """Who made each task's kernel; functions that are no task of the model count as default."""
    outcomes = []
    for task in tasks:
        candidate = chosen.get(task.workload_hash)
        by_default = candidate is None or task.name in defaulted or task.workload_hash in reasons
        if candidate is None or by_default:
            candidate = Candidate(task.workload_hash, "default", (), "default", math.nan)
        outcomes.append(
            TaskOutcome(
                name=task.name,
                workload_hash=task.workload_hash,
                weight=task.weight,
                source=candidate.proposer,
                rule=candidate.rule,
                decisions=dict(candidate.decisions),
                reason=reasons.get(task.workload_hash, ""),
                flops=task.flops,
            )
        )
    return tuple(outcomes)


def one_line(error: EdgeError) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split())
