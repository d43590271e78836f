"""From an imported model to a library: lower, propose, build."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from device_agent.contract.manifest import tensor_bytes
from host.compile.task_outcome import TaskOutcome
from host.errors import BuildError, EdgeError, LoweringError, ScheduleError, one_line
from host.model import Candidate, DeviceProfile, ImportedModel, LoweredModel, MemoryUse, Task
from host.progress import Progress, StageClock

if TYPE_CHECKING:
    import tvm

    from host.build import BuildStats
    from host.schedules import DesignSpace
    from host.schedules.sum_order import SumOrder
    from host.tuning.result import TuneResult

_LARGE_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class Plan:
    """A program for every task that has a design space.

    Attributes:
        spaces: design spaces by workload hash.
        chosen: candidates by workload hash.
        reasons: why a task has no candidate and gets a default schedule, by workload hash.
        from_database: tasks whose candidate was found in the record store.
    """

    spaces: Mapping[str, DesignSpace]
    chosen: Mapping[str, Candidate]
    reasons: Mapping[str, str]
    from_database: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Compiled:
    """A model as a library.

    Attributes:
        lowered: the module without its parameters.
        parameters: what the library reads at run time, in order.
        library: the shared library.
        tasks: who made each kernel.
        memory: what it takes while it runs.
        tuning: what measuring kernels found out; None where none was asked for.
        plan: the programs that it was built of; None where the length is open.
        untuned: those that were made without measuring; None where nothing was tuned.
    """

    lowered: LoweredModel
    parameters: tuple[np.ndarray, ...]
    library: Path
    tasks: tuple[TaskOutcome, ...]
    memory: MemoryUse
    tuning: TuneResult | None = None
    plan: Plan | None = None
    untuned: Plan | None = None

    def without_parameters(self) -> Compiled:
        """The same without its parameters, once they are written to the bundle."""
        return replace(self, parameters=())


@contextmanager
def defects_as(kind: type[EdgeError], what: str) -> Iterator[None]:
    """Turn a defect of the compiler into an error that names it, so that another engine can take over.

    The cause stays attached, and `--verbose` shows it.
    """
    try:
        yield
    except EdgeError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise kind(f"{what}: a defect of the compiler, {type(error).__name__}: {reason}") from error


def lower_model(
    model: ImportedModel,
    profile: DeviceProfile,
    clock: StageClock,
    half: str = "",
    decisions: Mapping[str, int] | None = None,
) -> LoweredModel:
    """Lower an imported model for one device; with `half`, tensors lie in memory as that type.

    For a GPU, functions that belong on the CPU are marked for it. `decisions` are those of a plan
    (`host.lowering.lower.lower`).

    Raises:
        ImportFailed: the compiler cannot express the model.
        LoweringError: it has no lowering on this target.
    """
    from host.lowering import lower

    with clock.stage("lower"), defects_as(LoweringError, f"lowering {model.name}"):
        lowered = lower(model, profile.board, half=half, decisions=decisions)
        if profile.hardware.gpu is not None:
            from host.compile.placement import placed

            lowered = placed(lowered, profile.hardware)
        if sum(array.nbytes for array in lowered.parameters) >= _LARGE_BYTES:
            # Nodes and values name each other: the graphs of all passes, with their forms of the weights, lie
            # in memory until the collector comes by, which may be after everything was measured.
            gc.collect()
        return lowered


def sum_order(lowered: LoweredModel) -> SumOrder:
    """The order of sums of a language model's step and of the functions of its bundle that compute such rows.

    A prefill is not among them: it may round what it reads, so that its rows are others in any order.
    """
    from device_agent.contract.manifest import TOGETHER, VERIFY
    from host.lowering.tasks import calls_of
    from host.schedules.sum_order import SumOrder

    same = [entry for entry in (VERIFY, TOGETHER) if entry in lowered.entries]
    entries = ["main", *same] if same else []
    return SumOrder({name for entry in entries for name in calls_of(lowered.module[entry])})


def with_sums_of_step(lowered: LoweredModel, plan: Plan) -> Plan:
    """The plan whose programs add up each row of a language model as those of its step do."""
    order, chosen = sum_order(lowered), dict(plan.chosen)
    for task in lowered.tasks:
        key = task.workload_hash
        if key in chosen:
            chosen[key] = order.of(task, plan.spaces[key], chosen[key])
    same = {key for key in plan.from_database if chosen[key] == plan.chosen[key]}
    return replace(plan, chosen=chosen, from_database=frozenset(same))


class Construction:
    """Gensor's programs of the tasks of a model, made one after the other without measuring.

    Attributes:
        plan: the programs that are made so far, or the reason why a task has none.

    Args:
        lowered: the model.
        profile: of the device.
        seed: of Gensor's walks.
    """

    def __init__(self, lowered: LoweredModel, profile: DeviceProfile, seed: int) -> None:
        from host.plans.shared_kernels import SharedKernels

        self._tasks, self._profile, self._seed = lowered.tasks, profile, seed
        self._order = sum_order(lowered)
        self._shared = SharedKernels(lowered, profile, seed)
        self._spaces: dict[str, DesignSpace] = {}
        self._chosen: dict[str, Candidate] = {}
        self._reasons: dict[str, str] = {}
        self.plan = Plan(self._spaces, self._chosen, self._reasons)

    def each(self, progress: Progress) -> Iterator[Task]:
        """The tasks, each once the plan has its program: last those of which threads may share none."""
        for index, task in enumerate(self._tasks):
            kept = self._construct(task)
            progress.advance(index + 1, len(self._tasks))
            if not kept:
                yield task
        for task, alone in self._shared.decided(self._order.of):
            if alone is not None:
                self._chosen[task.workload_hash] = alone
            yield task

    def _construct(self, task: Task) -> bool:
        """Make the program of a task, or find a reason; whether it is still to be decided who computes it."""
        from host.gensor import Gensor
        from host.schedules import space_for
        from host.tensor_ir.processor import is_for_cpu

        key, proposer = task.workload_hash, Gensor()
        if is_for_cpu(task.function):
            self._reasons[key] = "runs on the CPU beside the GPU"
            return False
        try:
            with defects_as(ScheduleError, task.name):
                space = space_for(task, self._profile.hardware, self._profile.threads)
                self._spaces[key] = space
                candidates = proposer.propose(space, self._profile, (), 1, self._seed)
            if candidates:
                self._chosen[key] = self._order.of(task, space, candidates[0])
                return self._shared.keeps(task, space, self._chosen[key])
            self._reasons[key] = f"{proposer.name} found no program in the design space"
        except ScheduleError as error:
            self._reasons[key] = one_line(error)
        return False


def propose(lowered: LoweredModel, profile: DeviceProfile, seed: int, clock: StageClock) -> Plan:
    """Gensor's program for each task, made without measuring, or the reason why a task has none."""
    construction = Construction(lowered, profile, seed)
    with clock.stage("propose"):
        for _ in construction.each(clock.progress):
            pass
    return construction.plan


def build(
    lowered: LoweredModel, profile: DeviceProfile, plan: Plan, library: Path, clock: StageClock
) -> Compiled:
    """Compile every kernel and link the model.

    Raises:
        BuildError: a kernel does not compile or linking fails.
    """
    with clock.stage("build"):
        return _built(lowered, profile, plan, lowered.tasks, library, clock.progress.advance)


def propose_and_build(
    lowered: LoweredModel, profile: DeviceProfile, seed: int, library: Path, clock: StageClock
) -> Compiled:
    """As `propose` and then `build`, but the first kernels are compiled while the next programs are made.

    Raises:
        BuildError: a kernel does not compile or linking fails.
    """
    construction = Construction(lowered, profile, seed)
    with ExitStack() as stage:
        stage.enter_context(clock.stage("propose"))
        proposing = True

        def tasks() -> Iterator[Task]:
            nonlocal proposing
            yield from construction.each(clock.progress)
            proposing = False
            stage.close()
            stage.enter_context(clock.stage("build"))

        def advance(done: int, total: int) -> None:
            if not proposing:
                clock.progress.advance(done, total)

        return _built(lowered, profile, construction.plan, tasks(), library, advance)


def _built(
    lowered: LoweredModel,
    profile: DeviceProfile,
    plan: Plan,
    tasks: Iterable[Task],
    library: Path,
    advance: Callable[[int, int], None],
) -> Compiled:
    """As `build`.

    Args:
        lowered: the model.
        profile: of the device.
        plan: has the program of a task once `tasks` gives the task.
        tasks: of the model.
        library: where the library goes.
        advance: receives kernels done and kernels in all.
    """
    from host.build import KernelCache, build_model, cuda_major

    with defects_as(BuildError, f"building {lowered.name}"):
        failed: dict[str, str] = {}
        stats = build_model(
            lowered,
            each_scheduled(tasks, plan, failed),
            library,
            lambda done, total, _: advance(done, total),
            cache=KernelCache(),
            cuda_major=cuda_major(profile.software),
        )
    outcomes = _outcomes(lowered.tasks, plan, failed, stats)
    memory = memory_use(lowered, stats, profile.threads)
    return Compiled(replace(lowered, parameters=()), lowered.parameters, library, outcomes, memory, plan=plan)


def memory_use(lowered: LoweredModel, stats: BuildStats, threads: int) -> MemoryUse:
    """The memory that a built model needs.

    Args:
        lowered: the model, with its parameters.
        stats: of building it.
        threads: that compute the parts of a parallel loop.
    """
    signature, workspace = lowered.signature, stats.workspace
    outside = (*signature.inputs, *signature.outputs, *(lowered.sequences * lowered.state))
    interface = sum(tensor_bytes(spec.shape, spec.dtype) for spec in outside)
    return MemoryUse(
        weights_bytes=sum(array.nbytes for array in lowered.parameters),
        activations_bytes=stats.activations_bytes + interface,
        workspace_bytes=None
        if workspace is None
        else workspace.shared_bytes + threads * workspace.thread_bytes,
    )


def scheduled_kernels(
    tasks: Sequence[Task], plan: Plan
) -> tuple[dict[str, tvm.tirx.PrimFunc], dict[str, str]]:
    """Scheduled functions by name, and the reason for each candidate that did not apply."""
    failed: dict[str, str] = {}
    return dict(each_scheduled(tasks, plan, failed)), failed


def each_scheduled(
    tasks: Iterable[Task], plan: Plan, failed: dict[str, str]
) -> Iterator[tuple[str, tvm.tirx.PrimFunc]]:
    """Names and scheduled functions, each scheduled when it is asked for.

    Args:
        tasks: of the model.
        plan: their programs, each when its task is given.
        failed: receives the reason for each candidate that does not apply, by workload hash.
    """
    from host.schedules import scheduled_function

    for task in tasks:
        candidate = plan.chosen.get(task.workload_hash)
        if candidate is None:
            continue
        try:
            with defects_as(ScheduleError, task.name):
                function = scheduled_function(plan.spaces[task.workload_hash].apply(candidate))
        except ScheduleError as error:
            failed[task.workload_hash] = one_line(error)
        else:
            yield task.name, function


def _outcomes(
    tasks: Sequence[Task], plan: Plan, failed: Mapping[str, str], stats: BuildStats
) -> tuple[TaskOutcome, ...]:
    """The outcome of each task: the program that was built, its proposer, and why it is a default one."""
    from host.tensor_ir.processor import is_for_cpu

    outcomes, defaulted = [], set(stats.defaulted)
    for task in tasks:
        key = task.workload_hash
        candidate = plan.chosen.get(key)
        if candidate is None or key in failed or task.name in defaulted:
            candidate = Candidate(key, "default", (), "default", math.nan, 0)
        outcomes.append(
            TaskOutcome(
                name=task.name,
                workload_hash=key,
                weight=task.weight,
                source=candidate.proposer,
                rule=candidate.rule,
                decisions=dict(candidate.decisions),
                from_database=candidate.proposer != "default" and key in plan.from_database,
                reason=failed.get(key) or plan.reasons.get(key) or stats.refused.get(task.name, ""),
                flops=task.flops,
                layers=task.layers,
                processor="cpu" if is_for_cpu(task.function) else "",
                copied_bytes=sum(one.bytes for one in stats.crossings if one.kernel == task.name),
            )
        )
    return tuple(outcomes)
