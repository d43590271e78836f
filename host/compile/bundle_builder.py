"""Bundles out of an imported model: ours, or the model file with the engine that runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from device_agent.contract.manifest import as_name
from host import bundle
from host.compile import static_model as compiling
from host.compile.kernel_tuning import Tuning, prefer_winner, recall, records_of
from host.compile.ranged_model import RangedModel, compile_ranged, read_ranged
from host.compile.result import TaskOutcome
from host.compile.tasks_file import tasks_json
from host.errors import ImportFailed, ModelFileError, UserError
from host.manifest import Draft, Kernel, Origin, signature_part
from host.model import DeviceProfile, ImportedModel, LoweredModel
from host.options import Backend, CompileOptions
from host.progress import StageClock

if TYPE_CHECKING:
    from host.sandbox import Worker
    from host.transport import Device
    from host.tuning.result import TuneResult
    from host.tuning.runners.connection import BoardConnection

_VERSIONED = ("edgetlm", "apache-tvm", "apache-tvm-ffi", "onnxruntime", "ai-edge-litert", "torch", "numpy")


def versions() -> dict[str, str]:
    """Versions on the host, by package."""
    found = {"python": sys.version.split()[0]}
    for package in _VERSIONED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def check_file(path: Path) -> None:
    """Refuse a model file that is not there before anything slow starts.

    Raises:
        ModelFileError: no such file, or not a file.
    """
    if not path.exists():
        raise ModelFileError(f"{path}: no such file")
    if not path.is_file():
        raise ModelFileError(f"{path} is not a file: give an ONNX, .pt2 or TFLite file")


def let_go(model: ImportedModel) -> ImportedModel:
    """The model without what only its compilation needs, which is as large as the weights."""
    if isinstance(model, RangedModel):
        return replace(model, source=None)
    return replace(model, module=None)


def read_model(options: CompileOptions, clock: StageClock, reader: Worker | None = None) -> ImportedModel:
    """Import the model file under the name that it is to have.

    Args:
        options: which file, and how.
        clock: counts the stage.
        reader: a worker of `host.importers.start_ahead` for the file; one is started if None.

    Raises:
        UserError: not a model, or its shapes do not fit.
        EngineError: not even its own runtime can run it.
    """
    if options.ranged:
        return read_ranged(options, clock)
    from host.importers import load

    with clock.stage("import"):
        model = load(
            options.model,
            options.fixed_shapes(),
            options.seed,
            half=options.dtype == "fp16",
            notice=clock.progress.note,
            worker=reader,
        )
    return replace(model, name=options.name or as_name(model.name))


@dataclass(frozen=True)
class Maker:
    """Makes bundles of one model for one device.

    Attributes:
        options: how.
        profile: the device.
        folder: where bundles and scratch files go.
        clock: counts the stages.
        device: where kernels are measured; None where nothing runs.
        replaced: told of the connection that takes the place of a lost one.
        others: further boards of the kind that measure kernels beside the device.
    """

    options: CompileOptions
    profile: DeviceProfile
    folder: Path
    clock: StageClock
    device: Device | None = None
    replaced: Callable[[Device], None] = lambda device: None
    others: tuple[BoardConnection, ...] = ()

    def directory(self, backend: str) -> Path:
        """Where a backend's bundle grows."""
        return self.folder / backend

    def compiled(self, model: ImportedModel) -> compiling.Compiled:
        """Write the bundle of the compiled model; what is returned no longer holds the parameters.

        Raises:
            ImportFailed: the compiler cannot express the model.
            LoweringError: it has no lowering on this target.
            BuildError: a kernel does not compile.
            DeviceFull: no space left.
        """
        if isinstance(model, RangedModel):
            made = compile_ranged(model, self.profile, self.options.seed, self.folder / "lib.so", self.clock)
            with self.clock.stage("compile"):
                draft = self._draft(model, "tvm")
                bundle.write_tvm(self.directory("tvm"), draft, made.library, made.parameters, model.golden)
            return made.without_parameters()
        if model.module is None:
            raise ImportFailed(model.reason, model.operator)
        lowered = compiling.lower_model(model, self.profile, self.clock, half=self.options.dtype == "fp16")
        constructed = compiling.propose(lowered, self.profile, self.options.seed, self.clock)
        plan, tuning = self._learned(model, lowered, constructed)
        return self.assembled(model, lowered, plan, constructed, tuning)

    def assembled(
        self,
        model: ImportedModel,
        lowered: LoweredModel,
        plan: compiling.Plan,
        constructed: compiling.Plan,
        tuning: TuneResult | None,
    ) -> compiling.Compiled:
        """Build a plan and write its bundle; what is returned no longer holds the parameters.

        Args:
            model: the imported model.
            lowered: the same, lowered.
            plan: a program for each task.
            constructed: those that were made without measuring.
            tuning: what measuring found out; None where nothing was measured.

        Raises:
            BuildError: a kernel does not compile.
            DeviceFull: no space left.
        """
        made = compiling.build(lowered, self.profile, plan, self.folder / "lib.so", self.clock)
        with self.clock.stage("compile"):
            draft = self._draft(model, "tvm")
            tasks = tasks_json(lowered.tasks, plan, self.profile, self.options.seed)
            bundle.write_tvm(self.directory("tvm"), draft, made.library, made.parameters, model.golden, tasks)
        untuned = constructed if tuning is not None else None
        return replace(made, tuning=tuning, untuned=untuned).without_parameters()

    def _learned(
        self, model: ImportedModel, lowered: LoweredModel, constructed: compiling.Plan
    ) -> tuple[compiling.Plan, TuneResult | None]:
        """The plan with what the records know, and with what is measured now where that is asked for."""
        records, seed = records_of(self.options), self.options.seed
        plan = recall(constructed, self.profile, records)
        if not self.options.tuned:
            return prefer_winner(plan, self.profile, records, seed, self.clock), None
        return self.tuning(model).improve(lowered, constructed, plan)

    def tuning(self, model: ImportedModel) -> Tuning:
        """The tuning of a model on the device.

        Raises:
            UserError: there is no device to measure on.
        """
        from host.transport import connect

        device = self.device
        if device is None:
            raise UserError("--trials and --budget need a device to measure on: use sdk deploy or sdk tune")
        return Tuning(
            options=self.options,
            profile=self.profile,
            device=device,
            connect=lambda: connect(device.name, self.options.wait_s),
            folder=self.folder,
            clock=self.clock,
            content_hash=model.content_hash,
            versions=versions(),
            replaced=self.replaced,
            others=self.others,
        )

    def engine(self, model: ImportedModel, backend: Backend, reason: str) -> Path:
        """Write the bundle of the model file itself and return its directory.

        Raises:
            DeviceFull: no space left.
        """
        directory = self.directory(backend)
        bundle.write_engine(directory, self._draft(model, backend, reason), model.path, model.golden)
        return directory

    def _draft(self, model: ImportedModel, backend: Backend, reason: str = "") -> Draft:
        return Draft(
            name=model.name,
            backend=backend,
            signature=signature_part(model.signature),
            origin=Origin(name=self.options.model.name, format=model.format, content_hash=model.content_hash),
            threads=self.profile.threads,
            dtype=self.options.dtype if backend == "tvm" else "fp32",
            target=dict(self.profile.board.tvm_target),
            versions={**versions(), **self.profile.software},
            command=self.options.command,
            reason=reason,
        )


def kernels_part(tasks: Sequence[TaskOutcome]) -> tuple[Kernel, ...]:
    """The manifest's form of the tasks."""
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
        )
        for task in tasks
    )
