"""`--trials N`, `--budget T`, and the records of earlier ones that are recalled."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.compile.static_model import Plan
from host.compile.tuning.first_programs import language_model
from host.compile.tuning.proposers import TLM
from host.compile.tuning.sources import sources_with
from host.errors import UserError
from host.execution.cores import usable_cores
from host.model import DeviceProfile, ImportedModel, LoweredModel, Task
from host.options import CompileOptions
from host.options.objective import power_exponent
from host.places import records_file
from host.progress import StageClock
from host.records import MODEL, Record, RecordOrigin, profile_data
from host.records.place import is_there
from host.tuning.budget import Budget, Deadline, kept_for_comparison_s

if TYPE_CHECKING:
    from host.records import RecordStore
    from host.schedules.design import DesignSpace
    from host.schedules.proposer import Proposer
    from host.transport import Device
    from host.tuning.learning.finetuning import FinetuneTrainer
    from host.tuning.options import TuningProgress
    from host.tuning.result import TuneResult
    from host.tuning.runners.connection import BoardConnection
    from host.tuning.runners.device_runner import DeviceRunner
    from host.tuning.runners.in_model import KernelsInModel
    from host.tuning.runners.reach import Reach
    from host.tuning.tasks import TuningTask

# Share of the time of the model from which on the energy of a task is measured.
HEAVY = 0.02


def records_of(options: CompileOptions) -> str | Path:
    """The store of the records: that of the options, else the user's."""
    return options.records if "://" in options.records else Path(options.records or records_file())


def recall(plan: Plan, profile: DeviceProfile, records: str | Path, objective: str = "latency") -> Plan:
    """Take the program that earlier tunings chose by measuring, wherever there is one.

    A recorded program that is no longer legal does not replace the constructed one. What was measured for
    another objective counts by its times for latency, and by its watts too for the others.
    """
    if not is_there(records):
        return plan
    from host.records import RecordStore

    rules = {key: plan.spaces[key].rule for key in plan.chosen}
    with RecordStore(records) as store:
        tasks = {key: (rule.name, rule.version) for key, rule in rules.items()}
        best = _best_of(store, tasks, profile_data(profile), power_exponent(objective))
    recorded = {key: record.candidate for key, record in best.items()}
    found = {key: candidate for key, candidate in recorded.items() if plan.spaces[key].holds(candidate)}
    return replace(plan, chosen={**plan.chosen, **found}, from_database=frozenset(found))


def _best_of(
    store: RecordStore, tasks: Mapping[str, tuple[str, int]], profile: Mapping[str, Any], exponent: float
) -> Mapping[str, Record]:
    """The record whose program is to be taken of each task that has one."""
    if not exponent:
        return store.best_of(tasks, profile)
    # Watts have no column in the database: the records of the tasks are read.
    each = {task: store.best(task, profile, dict([rule]), exponent) for task, rule in tasks.items()}
    return {task: record for task, record in each.items() if record is not None}


@dataclass(frozen=True)
class KernelTuning:
    """Tunes the tasks of one lowered model on one device.

    Attributes:
        options: budget, seed, records, whether to train.
        profile: of the device.
        device: connected.
        connect: connects to it again.
        folder: scratch.
        clock: counts the stage and shows progress.
        content_hash: of the model file and its shapes.
        versions: of the host's packages.
        replaced: receives the connection that takes the place of a lost one.
        others: further boards of the kind that measure beside the device.
        proposer: the user's own, which proposes beside the others.
        instead: proposers that replace all of these, and nothing is learned; () for none.
        reach: how the device is reached, and where programs are built; None for this process.
        deadline: by which measuring and training end.
    """

    options: CompileOptions
    profile: DeviceProfile
    device: Device
    connect: Callable[[], Device]
    folder: Path
    clock: StageClock
    content_hash: str
    versions: Mapping[str, str]
    replaced: Callable[[Device], None]
    others: tuple[BoardConnection, ...] = ()
    proposer: Proposer | None = None
    instead: tuple[Proposer, ...] = ()
    reach: Reach | None = None
    deadline: Deadline = field(default_factory=Deadline)

    def improve(
        self, model: ImportedModel, lowered: LoweredModel, constructed: Plan, plan: Plan
    ) -> tuple[Plan, TuneResult]:
        """Spend the budget and take the best program of each task.

        Args:
            model: the imported model.
            lowered: the same, lowered.
            constructed: a program of Gensor's for each task, with its estimate.
            plan: the programs to improve on.

        Raises:
            BuildError: the model that kernels are measured in does not compile.
            UserError: the language model was asked for, and there is none.
            DeviceError: the device went away and does not come back; what was measured is kept.
        """
        from host.records import RecordStore
        from host.tuning.loop import tune
        from host.tuning.runners.connection import BoardAccess

        reach = self._reach()
        lead = reach.connection(
            BoardAccess(self.profile.device, self.profile, self.connect, self.device, keep=True)
        )
        with RecordStore(records_of(self.options)) as store, ExitStack() as ending:
            in_model = self._in_model(model, lowered, plan, store)
            tasks = tuning_tasks(lowered.tasks, constructed, plan, in_model)
            if self.options.weighs_energy:
                tasks = with_energy(tasks)
            ending.enter_context(self.clock.stage("tune"))
            runner = ending.enter_context(self._runner((lead, *self.others), tasks, constructed, in_model))
            proposers, trainer, bases = self._proposers([one.space for one in tasks])
            if trainer is not None:
                ending.enter_context(trainer)
            try:
                result = tune(
                    tasks,
                    self.profile,
                    proposers,
                    runner,
                    store,
                    self._options(lowered.name, bases, tasks, in_model),
                    trainer,
                    _Shown(self.clock),
                )
            finally:
                if lead.device is not None and lead.device is not self.device:
                    self.replaced(lead.device)
        skipped = {**untuned(lowered.tasks, constructed, in_model), **result.skipped}
        return _improved(plan, result), replace(result, skipped=skipped)

    def _in_model(
        self, model: ImportedModel, lowered: LoweredModel, plan: Plan, store: RecordStore
    ) -> KernelsInModel | None:
        """Measures kernels inside of the model; None where each is measured by itself.

        That is on a GPU, and where the device's policy of timing has it so.
        """
        if self.profile.hardware.gpu is not None or not self.device.timing.in_model:
            return None
        from host.compile.tuning.reference_model import kernels_in_model

        return kernels_in_model(
            model, lowered, plan, self.profile, self.options, self.folder, store, self.clock
        )

    def _runner(
        self,
        connections: tuple[BoardConnection, ...],
        tasks: Sequence[TuningTask],
        constructed: Plan,
        in_model: KernelsInModel | None,
    ) -> DeviceRunner:
        """Measures programs; the constructed ones of the longest tasks compare the boards' speeds."""
        from host.tuning.runners.device_runner import DeviceRunner
        from host.tuning.runners.reconnect import ReconnectPolicy

        longest = sorted(tasks, key=lambda one: -one.weight * one.estimate_s)
        references = [(one, constructed.chosen[one.key]) for one in longest if one.key in constructed.chosen]
        return DeviceRunner(
            connections,
            self.profile,
            self.folder,
            self.clock.progress.note,
            references,
            ReconnectPolicy(limit_s=min(self.options.reconnect_s, max(1.0, self.deadline.left_s))),
            in_model,
            self._reach().engine,
        )

    def _reach(self) -> Reach:
        from host.tuning.runners.reach import Reach

        return self.reach or Reach()

    def _proposers(
        self, spaces: Sequence[DesignSpace]
    ) -> tuple[list[Proposer], FinetuneTrainer | None, dict[str, str]]:
        """Everybody who proposes, who trains, and the digests of language models by proposer."""
        from host.tuning.proposers.bayesian import BayesianProposer

        if self.instead:
            return list(self.instead), None, {}
        note = self.clock.progress.note
        model, digest = language_model(self.profile, note)
        trained = (self._trainer(spaces), {TLM: digest}) if model is not None else (None, {})
        if self.options.method == TLM:
            if model is None:
                raise UserError("--method tlm: there is no language model to use; the note before says why")
            return [model], *trained
        own = [
            BayesianProposer(sources_with(model), note, power_exponent(self.options.goal)),
            *([] if self.proposer is None else [self.proposer]),
        ]
        return own, *trained

    def _trainer(self, spaces: Sequence[DesignSpace]) -> FinetuneTrainer | None:
        """Trains the language model on what is measured; None if it is to stay as it is."""
        from host.tuning.learning.finetuning import FinetuneTrainer

        if not self.options.train:
            return None
        concurrent, low_priority = self._beside()
        threads = 1 if concurrent and low_priority else usable_cores()
        engine = self._reach().engine
        # A training has a core for itself: the only one is for builds, without which boards stand still.
        cluster = engine.cluster if engine.cluster and engine.cores() > 1 else ""
        about = self.profile, self.folder, self.options.seed
        return FinetuneTrainer(*about, threads, low_priority, cluster=cluster, spaces=spaces)

    def _options(
        self,
        model: str,
        bases: Mapping[str, str],
        tasks: Sequence[TuningTask],
        in_model: KernelsInModel | None,
    ) -> Any:
        from host.tuning.history import tuning_key
        from host.tuning.options import TuneOptions

        measured_in = MODEL if in_model is not None else None
        model_s = math.fsum(task.weight * task.estimate_s for task in tasks)
        concurrent, low_priority = self._beside()
        origin = RecordOrigin(
            command=self.options.command,
            seed=self.options.seed,
            versions={**self.versions, **self.profile.software},
            model=model,
            device=self.profile.device,
            host=platform.node(),
            measured_in=measured_in,
        )
        return TuneOptions(
            tuning=tuning_key(
                self.content_hash, self.options.seed, measured_in, self.options.method, self.options.goal
            ),
            budget=Budget(self.options.trials, self.options.budget_s, together=measured_in is not None),
            seed=self.options.seed,
            concurrent=concurrent,
            low_priority=low_priority,
            workers=self._builders(low_priority),
            overlap=self._reach().engine.remote,
            confirm=measured_in is not None,
            origin=origin,
            bases=bases,
            epochs=self._reach().epochs,
            deadline=self.deadline.earlier(kept_for_comparison_s(self.deadline.left_s, model_s)),
            job_s=0.0 if in_model is None else in_model.job_s(model_s),
            exponent=power_exponent(self.options.goal),
        )

    def _builders(self, low_priority: bool) -> int:
        """How many programs are built at once: one for each core of the cluster or of this host."""
        engine = self._reach().engine
        if engine.remote:
            return engine.cores()
        return 1 if low_priority else usable_cores()

    def _beside(self) -> tuple[bool, bool]:
        """Whether work may run beside measurements, and whether it has to give way to them."""
        if self._reach().engine.remote:
            # Hosts keep builds away from the cores that measure, and nothing is measured from this process.
            return True, False
        local = self.device.shares_files
        return not local or usable_cores() > self.profile.threads, local


def tuning_tasks(
    tasks: tuple[Task, ...], constructed: Plan, plan: Plan, in_model: KernelsInModel | None
) -> list[TuningTask]:
    """Tasks that have a design space and can be measured, with the constructor's estimates."""
    from host.tuning.tasks import TuningTask

    estimates = {key: one.estimate_s for key, one in constructed.chosen.items() if one.estimate_s > 0}
    mean = math.fsum(estimates.values()) / len(estimates) if estimates else 1.0
    return [
        TuningTask(
            replace(constructed.spaces[key], task=task),
            estimates.get(key, mean),
            plan.chosen.get(key) if in_model is not None else None,
        )
        for task in tasks
        if (key := task.workload_hash) in constructed.spaces
        and constructed.spaces[key].rule.measurable
        and (in_model is None or in_model.measures(task.name))
    ]


def with_energy(tasks: Sequence[TuningTask]) -> list[TuningTask]:
    """The tasks, the heavy ones to be measured in energy.

    Those are the tasks with at least 2% of the model's estimated time, at most fifty of them. The share
    assumes, without a measurement, that the powers of two programs of one task differ by a quarter at most:
    a lighter task then moves the energy of the model by half a percent at most, which no comparison of whole
    models shows.
    """
    model_s = math.fsum(task.weight * task.estimate_s for task in tasks)
    return [replace(one, energy=one.weight * one.estimate_s >= HEAVY * model_s) for one in tasks]


def untuned(tasks: tuple[Task, ...], constructed: Plan, in_model: KernelsInModel | None) -> dict[str, str]:
    """Why tasks are not tuned, by kernel name."""
    views = {
        task.name: "the model does not call it"
        for task in tasks
        if in_model is not None and not in_model.measures(task.name)
    }
    unmeasurable = {
        task.name: "a measured call reads no text: the estimate decides"
        for task in tasks
        if (space := constructed.spaces.get(task.workload_hash)) is not None and not space.rule.measurable
    }
    return (
        views
        | unmeasurable
        | {
            task.name: constructed.reasons.get(task.workload_hash, "no rule matches it")
            for task in tasks
            if task.workload_hash not in constructed.spaces
        }
    )


def _improved(plan: Plan, result: TuneResult) -> Plan:
    """The plan with the best program of each task."""
    best = {task.workload_hash: task.best for task in result.tasks if task.best is not None}
    earlier = {task.workload_hash for task in result.tasks if task.earlier}
    reasons = {key: reason for key, reason in plan.reasons.items() if key not in best}
    kept = plan.from_database - best.keys()
    return replace(
        plan, chosen={**plan.chosen, **best}, reasons=reasons, from_database=frozenset(kept | earlier)
    )


class _Shown:
    """Shows a tuning as the progress of a stage."""

    def __init__(self, clock: StageClock) -> None:
        self._progress = clock.progress

    def note(self, text: str) -> None:
        self._progress.note(text)

    def progress(self, progress: TuningProgress) -> None:
        budget = progress.budget
        if budget.trials:
            self._progress.advance(progress.trials, budget.trials)
        else:
            self._progress.advance(round(min(progress.elapsed_s, budget.seconds)), round(budget.seconds))
        parts = [f"{progress.trials} trials", f"model {progress.model_s * 1e3:.3f} ms"]
        if progress.unmeasured:
            parts[-1] += f" ({progress.unmeasured} tasks as estimated)"
        parts += [f"{name} {count}" for name, count in sorted(progress.won.items())]
        if progress.loss is not None:
            parts.append(f"withheld error {progress.loss:.3f}")
        if progress.training is not None:
            parts.insert(0, "training {} of {}".format(*progress.training))
        self._progress.status(", ".join(parts))
