"""From an imported model to a library: the same way for every command, for one length and for a range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host.compile import static_model
from host.compile.model_plans import lowered_by_record
from host.compile.ranged_model import RangedModel, compile_ranged
from host.compile.static_model import Compiled, Plan
from host.compile.tuning.first_programs import learn_from_others, take_first_programs
from host.compile.tuning.kernel_tuning import KernelTuning, recall, records_of
from host.errors import ImportFailed, UserError
from host.model import DeviceProfile, ImportedModel, LoweredModel
from host.options import CompileOptions
from host.options.compile import METHODS
from host.plans.plan import OWN, ModelPlan
from host.progress import StageClock
from host.records.place import is_there
from host.tuning.budget import Deadline
from host.versions import versions

if TYPE_CHECKING:
    from host.schedules.proposer import Proposer
    from host.transport import Device
    from host.tuning.result import TuneResult
    from host.tuning.runners.connection import BoardConnection
    from host.tuning.runners.reach import Reach


@dataclass(frozen=True, eq=False)
class PlannedModel:
    """A lowered model with a program for each of its tasks.

    Attributes:
        lowered: the model with its parameters.
        plan: the programs to build.
        constructed: those that were made without measuring.
        tuning: what measuring kernels found out; None where none was asked for.
    """

    lowered: LoweredModel
    plan: Plan
    constructed: Plan
    tuning: TuneResult | None = None


@dataclass(frozen=True)
class ModelCompiler:
    """Compiles one model for one device.

    Attributes:
        options: how.
        profile: the device, or its GPU.
        folder: where the library and scratch files go.
        clock: counts the stages.
        device: where kernels are measured; None where nothing runs.
        replaced: receives the connection that takes the place of a lost one.
        others: further boards of the kind that measure kernels beside the device.
        connect: connects to the device again, by its name; None where it is never lost.
        reach: how the device is reached, and where programs are built; None for this process.
        deadline: by which measuring kernels and training end.
        model_plan: what is decided across operators; None takes the plan on record, or the passes' own.
    """

    options: CompileOptions
    profile: DeviceProfile
    folder: Path
    clock: StageClock
    device: Device | None = None
    replaced: Callable[[Device], None] = lambda device: None
    others: tuple[BoardConnection, ...] = ()
    connect: Callable[[str], Device] | None = None
    reach: Reach | None = None
    deadline: Deadline = field(default_factory=Deadline)
    model_plan: ModelPlan | None = None

    def compile(self, model: ImportedModel) -> Compiled:
        """Lower a model, choose its programs, and link them.

        Raises:
            ImportFailed: the compiler cannot express the model.
            LoweringError: it has no lowering on this target.
            BuildError: a kernel does not compile.
            DeviceError: the device that kernels are measured on went away.
        """
        if isinstance(model, RangedModel):
            return compile_ranged(model, self.profile, self.options.seed, self._library, self.clock)
        return self.build(self.plan(model))

    def lower(self, model: ImportedModel) -> LoweredModel:
        """The functions of a model of one length, and what calls them.

        Raises:
            ImportFailed: the compiler cannot express the model.
            LoweringError: it has no lowering on this target.
        """
        if model.module is None:
            raise ImportFailed(model.reason, model.operator)
        if self.model_plan is None:
            return lowered_by_record(model, self.profile, self.options, self.clock)
        decisions = dict(self.model_plan.decisions)
        return static_model.lower_model(model, self.profile, self.clock, self.options.half, decisions)

    def recalled(self, lowered: LoweredModel) -> bool:
        """Whether a model was lowered with a plan on record that departs from the passes."""
        return self.model_plan is None and not ModelPlan.of(lowered.sites).is_own

    def by_the_passes(self) -> ModelCompiler:
        """The same without the plan on record."""
        return replace(self, model_plan=OWN)

    def plan(self, model: ImportedModel) -> PlannedModel:
        """Lower a model of one length and choose a program for each of its tasks.

        A program is the one that earlier tunings found, else one that is made without measuring; where
        trials or a budget are asked for, kernels are measured on the device.

        Raises:
            ImportFailed: the compiler cannot express the model.
            LoweringError: it has no lowering on this target.
            UserError: measuring was asked for, and there is no device.
            DeviceError: the device went away and does not come back; what was measured is kept.
        """
        from host.compile.tuning.proposers import method_proposers, user_proposer

        options, seed = self.options, self.options.seed
        # Before any work, so that a name which is not there is refused at once.
        proposer = user_proposer(options.proposer)
        alone = method_proposers(options.method)
        lowered = self.lower(model)
        constructed = static_model.propose(lowered, self.profile, seed, self.clock)
        records = records_of(options)
        plan = recall(constructed, self.profile, records, options.goal)
        if proposer is not None and not options.tuned:
            new = plan.chosen.keys() - plan.from_database
            plan = take_first_programs(proposer, plan, new, self.profile, seed, self.clock)
        else:
            plan = learn_from_others(plan, self.profile, records, seed, self.clock, options.goal)
        tuning = None
        if options.tuned:
            plan, tuning = self._tuning(model, proposer, alone).improve(model, lowered, constructed, plan)
        return PlannedModel(lowered, static_model.with_sums_of_step(lowered, plan), constructed, tuning)

    def build(self, planned: PlannedModel) -> Compiled:
        """Compile every kernel of a plan and link the model.

        Raises:
            BuildError: a kernel does not compile or linking fails.
        """
        made = static_model.build(planned.lowered, self.profile, planned.plan, self._library, self.clock)
        untuned = planned.constructed if planned.tuning is not None else None
        return replace(made, tuning=planned.tuning, untuned=untuned)

    @property
    def only_constructs(self) -> bool:
        """Whether Gensor makes all programs: no kernel was or is measured, and nothing else may propose."""
        options, records = self.options, records_of(self.options)
        measured = options.tuned or is_there(records)
        return not measured and options.proposer == "" and options.method in METHODS

    def construct(self, lowered: LoweredModel) -> Compiled:
        """Compile a model where Gensor makes all programs, each kernel as soon as it has its program.

        Raises:
            BuildError: a kernel does not compile or linking fails.
        """
        options = self.options
        return static_model.propose_and_build(lowered, self.profile, options.seed, self._library, self.clock)

    @property
    def _library(self) -> Path:
        return self.folder / "lib.so"

    def _tuning(
        self, model: ImportedModel, proposer: Proposer | None, alone: tuple[Proposer, ...]
    ) -> KernelTuning:
        device, connect = self.device, self.connect
        if device is None or connect is None:
            raise UserError("--trials and --budget need a device to measure on: use sdk deploy or sdk tune")
        return KernelTuning(
            options=self.options,
            profile=self.profile,
            device=device,
            connect=lambda: connect(device.name),
            folder=self.folder,
            clock=self.clock,
            content_hash=model.content_hash,
            versions=versions(),
            replaced=self.replaced,
            others=self.others,
            proposer=proposer,
            instead=alone,
            reach=self.reach,
            deadline=self.deadline,
        )
