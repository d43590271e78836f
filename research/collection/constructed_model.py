"""A model with the programs that are constructed without measuring: tuned from there, and built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from host.compile import static_model
from host.compile.bundle_builder import BundleBuilder
from host.compile.model_compiler import ModelCompiler
from host.compile.model_file import read_model
from host.compile.static_model import Plan
from host.compile.tuning.kernel_tuning import KernelTuning
from host.model import DeviceProfile, ImportedModel, LoweredModel
from host.options import DeployOptions
from host.progress import Silence, StageClock
from host.schedules.proposer import Proposer
from host.transport import Device, connect
from host.tuning.result import TuneResult
from host.versions import versions


@dataclass(frozen=True, eq=False)
class ConstructedModel:
    """A model that is lowered for this machine, with its design spaces.

    Attributes:
        options: with the number of trials and the records of a tuning.
        profile: of the device.
        model: imported.
        lowered: the same, lowered.
        plan: constructed without measuring.
    """

    options: DeployOptions
    profile: DeviceProfile
    model: ImportedModel
    lowered: LoweredModel
    plan: Plan

    @classmethod
    def read(
        cls, options: DeployOptions, profile: DeviceProfile, folder: Path, seed: int
    ) -> ConstructedModel:
        """Import and lower a model, and construct its programs.

        Args:
            options: name the model.
            profile: of the device.
            folder: for temporary files; exists.
            seed: of the construction.
        """
        clock = StageClock(Silence())
        model = read_model(options, clock, profile=profile)
        lowered = ModelCompiler(options, profile, folder, clock).lower(model)
        return cls(options, profile, model, lowered, static_model.propose(lowered, profile, seed, clock))

    def tuned(self, device: Device, folder: Path, proposers: Sequence[Proposer]) -> tuple[Plan, TuneResult]:
        """The plan that measuring comes to, and what was measured.

        Args:
            device: this machine.
            folder: for temporary files; it is made.
            proposers: of the programs to measure, instead of those of the product; none leaves these.
        """
        folder.mkdir()
        tuning = KernelTuning(
            options=self.options,
            profile=self.profile,
            device=device,
            connect=lambda: connect("local"),
            folder=folder,
            clock=StageClock(Silence()),
            content_hash=self.model.content_hash,
            versions=versions(),
            replaced=lambda device: None,
            instead=tuple(proposers),
        )
        return tuning.improve(self.model, self.lowered, self.plan, self.plan)

    def bundle(self, plan: Plan, folder: Path) -> Path:
        """The bundle of the model with the programs of a plan, in a folder that is made."""
        folder.mkdir()
        clock = StageClock(Silence())
        made = static_model.build(self.lowered, self.profile, plan, folder / "lib.so", clock)
        builder = BundleBuilder(ModelCompiler(self.options, self.profile, folder, clock))
        builder.write(self.model, made)
        return builder.directory("tvm")
