"""Bundles out of an imported model: the compiled one, or the model file with the engine that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from host import bundle
from host.compile.bundle_draft import draft_of
from host.compile.memory_cap import require_fits, require_within
from host.compile.model_compiler import ModelCompiler, PlannedModel
from host.compile.ranged_model import RangedModel
from host.compile.static_model import Compiled
from host.compile.stored_tasks.file import tasks_json
from host.compile.task_outcome import TaskOutcome
from host.errors import BuildError, one_line
from host.manifest import Kernel, LayerPart, memory_part
from host.model import DeviceProfile, ImportedModel, LoweredModel
from host.options import Backend


@dataclass(frozen=True)
class BundleBuilder:
    """Writes bundles of one model for one device.

    Attributes:
        compiler: of the model; bundles lie in its folder.
    """

    compiler: ModelCompiler

    def with_profile(self, profile: DeviceProfile, folder: Path | None = None) -> BundleBuilder:
        """The same for another profile of the device, in another folder if one is given."""
        changed = replace(self.compiler, profile=profile, folder=folder or self.compiler.folder)
        return replace(self, compiler=changed)

    def directory(self, backend: str) -> Path:
        """The folder in which the bundle of a backend is built."""
        return self.compiler.folder / backend

    def compile(self, model: ImportedModel) -> Compiled:
        """Compile a model and write its bundle; see `ModelCompiler.compile` and `write`.

        Where that fails with a plan on record, the model is compiled as the passes make it.

        Raises:
            BuildError: also where it takes more memory than is allowed, or than the device has.
        """
        compiler = self.compiler
        if isinstance(model, RangedModel):
            return self.write(model, self._fitting(compiler.compile(model)))
        if compiler.only_constructs:
            lowered = compiler.lower(model)
            return self._written(model, lowered, lambda: compiler.construct(lowered))
        return self.compile_planned(model, compiler.plan(model))

    def compile_planned(self, model: ImportedModel, planned: PlannedModel) -> Compiled:
        """As `compile`, with the programs that were chosen already.

        Raises:
            BuildError: also where it takes more memory than is allowed, or than the device has.
        """
        return self._written(model, planned.lowered, lambda: self.compiler.build(planned))

    def _written(
        self, model: ImportedModel, lowered: LoweredModel, build: Callable[[], Compiled]
    ) -> Compiled:
        """Build a lowered model and write its bundle; without the plan on record where that fails."""
        compiler = self.compiler
        try:
            compiled = self._fitting(build())
        except BuildError as error:
            if not compiler.recalled(lowered):
                raise
            compiler.clock.progress.note(f"the plan on record is left out: {one_line(error)}")
            return self.by_the_passes().compile(model)
        return self.write(model, compiled)

    def by_the_passes(self) -> BundleBuilder:
        """The same without the plan on record."""
        return replace(self, compiler=self.compiler.by_the_passes())

    def in_single_precision(self) -> BundleBuilder:
        """The same for a processor that stores halves, and computes with none."""
        profile = self.compiler.profile
        hardware = replace(profile.hardware, half_arithmetic=False)
        return self.with_profile(
            replace(profile, hardware=hardware, board=replace(profile.board, hardware=hardware))
        )

    def _fitting(self, compiled: Compiled) -> Compiled:
        """The same, where its memory is allowed and there.

        Raises:
            BuildError: it takes more.
        """
        profile = self.compiler.profile
        require_within(compiled.memory, self.compiler.options.memory_cap_bytes)
        require_fits(compiled.memory, profile.device, profile.memory_bytes)
        return compiled

    def write(self, model: ImportedModel, compiled: Compiled) -> Compiled:
        """Write the bundle of a compiled model; what is returned no longer holds the parameters.

        Raises:
            DeviceFull: no space left.
        """
        compiler = self.compiler
        with compiler.clock.stage("compile"):
            tasks = ""
            if compiled.plan is not None:
                functions = compiled.lowered.tasks
                profile, seed = compiler.profile, compiler.options.seed
                tasks = tasks_json(functions, compiled.plan, profile, seed, compiled.lowered.sites)
            bundle.write_tvm(
                self.directory("tvm"),
                draft_of(
                    model,
                    compiler.options,
                    compiler.profile,
                    "tvm",
                    memory=memory_part(compiled.memory),
                    streamed=model.decoder is None
                    and compiled.lowered.streams(compiled.memory.weights_bytes),
                ),
                compiled.library,
                compiled.parameters,
                model.golden,
                tasks,
                model.decoder.tokenizer if model.decoder is not None else None,
                model.decoder.chat if model.decoder is not None else None,
            )
        return compiled.without_parameters()

    def engine(self, model: ImportedModel, backend: Backend, reason: str) -> Path:
        """Write the bundle of the model file itself and return its directory.

        Args:
            model: the imported model.
            backend: the engine that runs it.
            reason: why there is no compiled model in it; "" if there is no reason to give.

        Raises:
            DeviceFull: no space left.
        """
        directory = self.directory(backend)
        draft = draft_of(model, self.compiler.options, self.compiler.profile, backend, reason)
        bundle.write_engine(directory, draft, model.path, model.golden)
        return directory


def kernels_part(tasks: Sequence[TaskOutcome]) -> tuple[Kernel, ...]:
    """The entries of the tasks in the manifest."""
    return tuple(
        Kernel(
            name=task.name,
            task=task.workload_hash,
            weight=task.weight,
            source=task.source,
            rule=task.rule,
            decisions=dict(task.decisions),
            from_database=task.from_database,
            latency_us=task.latency_us,
            layers=tuple(LayerPart(**asdict(layer)) for layer in task.layers),
        )
        for task in tasks
    )
