"""The steps of a deployment: model file, library, device, verification, selection, installed bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host import bundle
from host.compare.backends import Choice, select_backend
from host.compare.comparison import (
    ComparisonSettings,
    EngineComparison,
    LengthFigures,
    compare_engines,
    why_excluded,
)
from host.compare.entrants import Entrant
from host.compare.selection import require_sensor
from host.compile.bundle_builder import BundleBuilder, kernels_part
from host.compile.device_profile import profile_of, target_profile
from host.compile.explanation import explained_kernels
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model, without_source
from host.compile.model_plans import compiled_plans, decided_plan
from host.compile.numeric_types import typed_model
from host.compile.processor import profile_for_processor
from host.compile.static_model import Compiled
from host.compile.task_outcome import TaskOutcome, with_times
from host.compile.variants import (
    FASTEST,
    GPU,
    Variant,
    compiled_single,
    engine_variants,
    variants_of,
)
from host.deploy import figures
from host.deploy.board_group import connections_of_kind
from host.deploy.comparison_settings import (
    comparison_settings,
    entrants_of,
    prestarted_sessions,
    selected_variant,
)
from host.deploy.gates import judged
from host.deploy.instructions import with_instructions
from host.deploy.leased_boards import LeasedBoards
from host.deploy.processors import Processors, compile_for_processors, compile_or_fall_back
from host.deploy.result import DeployResult
from host.deploy.staging import Staging
from host.deploy.texts import compared_texts, judged_text, timed_text, with_texts
from host.deploy.wrong_kernel import first_wrong_kernel
from host.engines import check_interpreters, engine_for_format, engines
from host.errors import EngineError
from host.manifest import Manifest
from host.model import GoldenCase, ImportedModel, TimingPolicy
from host.model_file import detect_format
from host.options import BACKENDS, SINGLE_PRECISION, CompileOptions, DeployOptions
from host.options.of_model import check_for_model
from host.progress import Progress, Silence, StageClock
from host.tuning.runners.reach import Reach, open_reach
from host.versions import versions

if TYPE_CHECKING:
    from host.compare.selection import VariantSelection
    from host.model.numeric_types import NumericTypes
    from host.plans.outcome import PlanOutcome
    from host.sandbox import Worker
    from host.transport import Device, Session


def default_bundle(options: CompileOptions) -> Path:
    """The place of a bundle if the user gives none."""
    return Path("edgetlm-out") / options.title / "bundle"


def deploy(
    options: DeployOptions,
    progress: Progress | None = None,
    before_install: Callable[[DeployResult], None] | None = None,
    reader: Worker | None = None,
    reach: Reach | None = None,
) -> DeployResult:
    """Compile a model file, verify and measure the bundle on a device, install and activate it.

    If any step fails, nothing is installed and no bundle is left. If a gate of the options is not met, the
    bundle is kept and not installed, and the result says which gate.

    Args:
        options: of the deployment.
        progress: receives the stages.
        before_install: called with the result when all is measured; an exception stops the installation.
        reader: a worker of `host.importers.start_ahead` for the model file; one is started if None.
        reach: how devices are reached, which the caller closes; as the options say if None.

    Raises:
        UserError: the request is invalid: file, shape, device, backend, destination.
        ImportFailed, LoweringError, BuildError: the compiler cannot express the model, with `--backend tvm`.
        EngineError: no engine of the device can run the model.
        VerifyError: outputs differ from the golden ones.
        DeviceError: the device went away or is full.
    """
    options.check()
    check_for_model(options, options.model, detect_format(options.model))
    check_interpreters(options.peer_pythons, options.peers)
    clock = StageClock(progress or Silence())
    with Staging(options.bundle or default_bundle(options)) as staging, ExitStack() as opened:
        with clock.stage("connect"):
            if reach is None:
                names = (options.device, *options.beside)
                reach = opened.enter_context(open_reach(options.engine, names))
            boards = opened.enter_context(LeasedBoards(options, "deploy", clock.progress.note, reach))
            device = boards.connect(options.device)
        deployment = _Deployment(options, clock, staging, boards, device, reader)
        try:
            # Sessions come and go; another host that waits is not let in between.
            device.reserve()
            result, directory = deployment.make()
            if before_install is not None:
                before_install(result)
            deployment.keep(directory, result)
        finally:
            # Not always the device of the start: one that was lost while kernels were measured came back.
            deployment.device.close()
        return replace(result, seconds=clock.seconds(), stages=clock.spans())


def compile_bundle(
    options: CompileOptions,
    target: str,
    output: Path,
    progress: Progress | None = None,
    reader: Worker | None = None,
) -> Manifest:
    """Compile a model for a target; nothing runs on a device, so nothing is verified.

    Args:
        options: of the compilation.
        target: a name of `targets.declared()`, or "local" for this machine.
        output: directory or `.zip` of the bundle.
        progress: receives the stages.
        reader: a worker of `host.importers.start_ahead` for the model file; one is started if None.

    Raises:
        UserError: the request is invalid.
        ImportFailed, LoweringError, BuildError: the compiler cannot express the model, with `--backend tvm`.
        EngineError: no engine that a bundle can have reads this format.
    """
    options.check()
    check_for_model(options, options.model, detect_format(options.model))
    clock = StageClock(progress or Silence())
    with Staging(output, "--output") as staging:
        profile = target_profile(target, options.threads, clock.progress.note)
        profile = profile_for_processor(profile, options)
        builder = BundleBuilder(ModelCompiler(options, profile, staging.folder, clock))
        model = read_model(options, clock, reader, profile)
        made, fallback = compile_or_fall_back(builder, model)
        if made is None:
            engine = engine_for_format(model.format).name
            wanted = engine if options.backend == "auto" else options.backend
            backend = next((name for name in BACKENDS if name == wanted), None)
            if backend is None or model.format not in engines()[backend].formats:
                raise EngineError(f"no bundle can hold a {model.format} model for {wanted}: {fallback}")
            directory = builder.engine(model, backend, fallback)
        else:
            directory = builder.directory("tvm")
        kernels = kernels_part(made.tasks) if made is not None else ()
        manifest = bundle.update(directory, bundle.read_manifest(directory), kernels=kernels)
        staging.commit(staging.prepare(directory))
    return manifest


@dataclass
class _Deployment:
    """The deployment of one model to one device: its options, its connections and what it has made so far."""

    options: DeployOptions
    clock: StageClock
    staging: Staging
    boards: LeasedBoards
    device: Device
    reader: Worker | None
    types: NumericTypes | None = None

    @property
    def timing(self) -> TimingPolicy:
        """What the times of the device are worth."""
        return self.device.timing

    def make(self) -> tuple[DeployResult, Path]:
        """All steps before the installation; returns the figures and the directory of the selected bundle."""
        with ExitStack() as opened:
            return self._made(opened)

    def _compared(self, model: ImportedModel) -> ComparisonSettings:
        return comparison_settings(self.device, model, self.options, self.clock)

    def _made(self, opened: ExitStack) -> tuple[DeployResult, Path]:
        """As `make`; sessions that are left over close with `opened`."""
        builder = self._builder()
        require_sensor(self.device, self.options.objective, self.options.power_cap_w)
        model = read_model(self.options, self.clock, self.reader, builder.compiler.profile)
        typed = typed_model(builder, model, self._compared(model), self.options)
        builder, model, self.options, self.types = typed.builder, typed.model, typed.options, typed.types
        # Weights go with the last name of the model that has them, below, before engines load theirs.
        del typed
        options, profile = self.options, builder.compiler.profile
        prestarted = opened.enter_context(prestarted_sessions(self.device, model, options, profile))
        architecture = profile.board.architecture
        compiled = self._compiled(builder, model)
        made, fallback, on_gpu, builder = compiled.made, compiled.fallback, compiled.on_gpu, compiled.builder
        context, step_bytes = (one.context, one.step_bytes) if (one := model.decoder) is not None else (0, 0)
        beside = made is not None and SINGLE_PRECISION in (self.options.peers or ())
        single = compiled_single(builder, model) if beside else None
        plans = compiled_plans(builder, model, made, options.plans, self.timing)
        model = without_source(model)
        variants = (*self._variants(model, builder, made), *plans.variants)
        variants = (*variants, on_gpu) if on_gpu is not None else variants
        variant, power = selected_variant(self._compared(model), variants, self.options)
        made = variant.made or made
        plan = decided_plan(builder, made, plans, power, variant.name) if made is not None else None
        profile = replace(builder.compiler.profile, threads=variant.threads)
        builder = builder.with_profile(profile)
        settings = replace(self._settings(model, builder, variant, made), prestarted=prestarted)
        entrants = entrants_of(
            model, variant, single, self.options, self.device, self.clock, self.staging.folder
        )
        comparison = compare_engines(settings, entrants)
        if self.timing.counts_instructions:
            comparison = with_instructions(comparison, made, architecture, self.clock.progress.note)
        choice = select_backend(comparison, options.backend, options.objective, options.power_cap_w, fallback)
        tasks = with_times(variant.tasks, comparison.kernel_times_s)
        directory = variant.path
        text, speed, beside_ours = None, None, None
        if choice.backend == "tvm":
            where = (directory, variant.threads, self.device, self.clock)
            on_processor = variant.name != GPU and profile.hardware.gpu is None
            text = judged_text(model, *where)
            speed = timed_text(*where, step_bytes, profile.hardware if on_processor else None)
            beside_ours = compared_texts(model.format, options, *where, on_processor)
            choice = with_texts(choice, beside_ours)
        memory = bundle.read_manifest(directory).memory if choice.backend == "tvm" else None
        if choice.backend != "tvm":
            plan = self.types = None
            directory = builder.engine(model, choice.backend, fallback)
        spaces = made.plan.spaces if made is not None and made.plan is not None else None
        lengths = comparison.at_lengths(model.signature)
        self._record(directory, choice, comparison, tasks, variant.threads, lengths, power, plan)
        result = DeployResult(
            name=model.name,
            bundle=self.staging.destination,
            device=self.options.device,
            machine=self.device.describe(),
            threads=variant.threads,
            signature=model.signature,
            choice=choice,
            contenders=comparison.results,
            ratios=comparison.ratios(),
            tasks=tasks,
            fallback=fallback,
            seconds=self.clock.seconds(),
            stages=self.clock.spans(),
            versions={**versions(), **profile.software},
            command=self.options.command,
            installed=self.options.install,
            lengths=lengths,
            tuning=compiled.tuning,
            power=power,
            bundle_bytes=bundle.runnable_bytes(directory),
            memory=memory,
            timing=self.timing,
            context=context,
            quantisation=model.quantisation,
            text=text,
            speed=speed,
            beside=beside_ours,
            replaced=self.staging.replaced(),
            date=datetime.now(UTC).date().isoformat(),
            parameters=model.parameters,
            explained=explained_kernels(directory, self.clock, spaces),
            calls=variant.calls,
            plan=plan,
            types=self.types,
        )
        gates = judged(options, result)
        met = all(one.passed for one in gates)
        return replace(result, gates=gates, installed=options.install and met), directory

    def _builder(self) -> BundleBuilder:
        """Makes bundles for the device, or for its GPU."""
        options = self.options
        profile = profile_of(self.device, options.threads, self.clock.progress.note)
        profile = profile_for_processor(profile, options)
        machine = self.device.describe()
        connect, reach = self.boards.connect, self.boards.reach
        others = connections_of_kind(options.device, machine, options.beside, profile, connect, reach)
        return BundleBuilder(
            ModelCompiler(
                options,
                profile,
                self.staging.folder,
                self.clock,
                self.device,
                self._replace_device,
                others,
                connect,
                reach,
            )
        )

    def _compiled(self, builder: BundleBuilder, model: ImportedModel) -> Processors:
        """The model's bundles for the processors of the board."""

        def why_wrong(directory: Path) -> str:
            ours = Entrant("tvm", "tvm", directory, builder.compiler.profile.threads)
            return why_excluded(self._compared(model), ours)

        return compile_for_processors(builder, self.options, model, self.timing, why_wrong)

    def _variants(
        self, model: ImportedModel, builder: BundleBuilder, made: Compiled | None
    ) -> tuple[Variant, ...]:
        """The variants of the model for the CPU that are measured beside each other."""
        options, threads = self.options, builder.compiler.profile.threads
        if made is None:
            engine = engine_for_format(model.format).name
            return engine_variants(engine, model.path, threads, options.needs_energy and not options.threads)
        if self.timing.decides:
            return variants_of(builder, made, wider=options.needs_energy)
        directory, calls = builder.directory("tvm"), made.lowered.calls
        return (Variant(FASTEST, "tvm", directory, threads, tasks=made.tasks, calls=calls),)

    def _replace_device(self, device: Device) -> None:
        self.device = device

    def _settings(
        self, model: ImportedModel, builder: BundleBuilder, variant: Variant, made: Compiled | None
    ) -> ComparisonSettings:
        def find(session: Session, cases: Sequence[GoldenCase]) -> str:
            assert made is not None
            # Without a state, no case depends on those before it.
            ran = cases if model.state else cases[-1:]
            return first_wrong_kernel(self.device, session, variant.path, made, builder.compiler.profile, ran)

        runs_kernels = made is not None and variant.name != GPU
        return replace(self._compared(model), diagnose=find if runs_kernels else None)

    def _record(
        self,
        directory: Path,
        choice: Choice,
        comparison: EngineComparison,
        tasks: Sequence[TaskOutcome],
        threads: int,
        lengths: Sequence[LengthFigures],
        power: VariantSelection | None,
        plan: PlanOutcome | None,
    ) -> None:
        """Write the measured figures into the chosen bundle's manifest."""
        measured: dict[str, Any] = {
            "device": self.options.device,
            "cpu": self.device.describe().cpu_name,
            "threads": threads,
            "choice": choice.why,
            "contenders": {name: figures.contender(one) for name, one in comparison.results.items()},
        }
        if lengths:
            measured["lengths"] = [figures.at_length(one) for one in lengths]
        if power is not None:
            measured["power"] = figures.power(power)
        if self.types is not None:
            measured["types"] = self.types.data()
        if plan is not None:
            measured["plan"] = plan.data()
        measured["emulated"] = not self.timing.decides
        measured["simulated"] = not self.timing.compares
        kernels = kernels_part(tasks) if choice.backend == "tvm" else ()
        bundle.update(directory, bundle.read_manifest(directory), measured=measured, kernels=kernels)

    def keep(self, directory: Path, result: DeployResult) -> None:
        """Install the bundle on the device if `result.installed`, then move it to its place on the host."""
        prepared = self.staging.prepare(directory)
        if result.installed:
            with self.clock.stage("install"):
                self.device.install(directory, result.name)
                self.device.activate(result.name)
        self.staging.commit(prepared)
