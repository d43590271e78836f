"""`sdk tune`: measure programs of a model's kernels on a device and train on the results."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host.compare.comparison import compare_variants
from host.compare.selection import require_sensor
from host.compile.bundle_builder import BundleBuilder
from host.compile.device_profile import profile_of
from host.compile.model_compiler import ModelCompiler, PlannedModel
from host.compile.model_file import read_model
from host.compile.processor import profile_for_processor
from host.compile.tuning.kernel_tuning import records_of
from host.compile.variants import tunes_gpu, variants_of
from host.deploy.board_group import Boards, device_names
from host.deploy.comparison_settings import comparison_settings
from host.deploy.leased_boards import LeasedBoards
from host.errors import BuildError, EngineError, MeasureError, one_line
from host.model import BOARD, ImportedModel, TimingPolicy
from host.model_file import check_file
from host.options import DeployOptions
from host.progress import Progress, Silence, StageClock
from host.records.database import store_name
from host.table import Table, Tabular
from host.tuning.budget import Deadline, comparison_s
from host.tuning.runners.reach import open_reach
from host.versions import versions

if TYPE_CHECKING:
    from host.compare.selection import VariantSelection
    from host.tuning.result import TuneResult
    from targets import MachineDescription


@dataclass(frozen=True)
class TunedModel(Tabular):
    """The result of `sdk tune`.

    Attributes:
        name: of the model.
        device: name of the device.
        machine: what it is.
        threads: of the kernels.
        tuning: the result of the loop.
        records: the store of the records.
        seconds: by stage, with "total".
        versions: by name, of host and device.
        command: the command line.
        power: the tuned and the untuned model, and variants and power modes if requested; None if the whole
            model could not be measured.
        timing: what the times of the device are worth.
    """

    name: str
    device: str
    machine: MachineDescription
    threads: int
    tuning: TuneResult
    records: str
    seconds: Mapping[str, float]
    versions: Mapping[str, str]
    command: str
    power: VariantSelection | None = None
    timing: TimingPolicy = BOARD

    @property
    def emulated(self) -> bool:
        """Whether its times say nothing of a board."""
        return not self.timing.decides

    def __repr__(self) -> str:
        """One line; the figures are in the fields."""
        tuning = self.tuning
        return (
            f"<TunedModel {self.name} on {self.device}: {tuning.trials} trials, "
            f"{tuning.model_s * 1e3:.3f} ms in kernels, {self.records}>"
        )

    def tables(self) -> tuple[Table, ...]:
        """The kernels, and the proposers of their programs."""
        kernels = Table(
            "kernels",
            f"{self.name} on {self.device}: {self.tuning.trials} programs tried",
            ("kernel", "calls", "best_us", "first_us", "best_by", "tried", "failed"),
            tuple(
                (
                    one.name,
                    one.weight,
                    None if one.best_s is None else one.best_s * 1e6,
                    None if one.first_s is None else one.first_s * 1e6,
                    None if one.best is None else one.best.proposer,
                    one.trials,
                    one.failed,
                )
                for one in self.tuning.tasks
            ),
        )
        proposers = Table(
            "proposers",
            "Proposers of the programs",
            ("proposer", "kernels_won", "share_of_time", "tried", "wins", "failed"),
            tuple(
                (one.name, one.tasks_won, one.time_won, one.trials, one.wins, one.failed)
                for one in self.tuning.proposers
            ),
        )
        return kernels, proposers


def tune_model(
    options: DeployOptions, progress: Progress | None = None, begun_s: float | None = None
) -> TunedModel:
    """Spend a budget of measurements on a model's kernels; later deployments use the records.

    A budget of time is that of the whole call. Two things come on top of it: waiting for a device with
    `options.wait_s`, and the comparison at the end where energy or power modes are asked for.

    Args:
        options: model, device, budget and records; nothing is compared, bundled or installed.
        progress: receives the stages.
        begun_s: when the budget of time began, in seconds of `time.monotonic`; now if None.

    Raises:
        UserError: the request is invalid: file, shape, device, budget.
        ImportFailed, LoweringError: the compiler cannot express the model.
        DeviceError: the device was lost and does not come back; all measurements are stored.
    """
    begun_s = time.monotonic() if begun_s is None else begun_s
    options.check_for_tuning()
    check_file(options.model)
    clock = StageClock(progress or Silence())
    note, names = clock.progress.note, device_names(options.device, options.engine)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder, ExitStack() as opened:
        with clock.stage("connect"):
            reach = opened.enter_context(open_reach(options.engine, names))
            leased = opened.enter_context(LeasedBoards(options, "tune", note, reach))
            boards = opened.enter_context(Boards(names, note, leased.connect, reach))
        waited_s = clock.seconds()["connect"] if options.wait_s else 0.0
        deadline = Deadline.after(options.budget_s, begun_s + waited_s)
        return _tuned(options, boards, leased, clock, Path(folder), deadline)


def _tuned(
    options: DeployOptions,
    boards: Boards,
    leased: LeasedBoards,
    clock: StageClock,
    folder: Path,
    deadline: Deadline,
) -> TunedModel:
    machine = boards.lead.describe()
    require_sensor(boards.lead, options.objective, options.power_cap_w)
    profile = profile_of(boards.lead, options.threads, clock.progress.note)
    if tunes_gpu(options, profile, boards.lead.timing):
        clock.progress.note("the GPU's programs are tuned; --processor cpu tunes the CPU's")
        options = replace(options, processor="gpu")
    profile = profile_for_processor(profile, options)
    compiler = ModelCompiler(
        options,
        profile,
        folder,
        clock,
        boards.lead,
        boards.replace,
        boards.others(profile),
        leased.connect,
        leased.reach,
        deadline,
    )
    model = read_model(options, clock, profile=profile)
    planned = compiler.plan(model)
    tuning = planned.tuning
    assert tuning is not None
    if tuning.stopped == "time" and not tuning.measured_now:
        clock.progress.note(
            f"{options.budget_s:g} s of time are over and no program was measured: give more; what was "
            "compiled is kept, so that the same command gets further"
        )
    power = _before_and_after(boards, compiler, model, planned)
    return TunedModel(
        name=model.name,
        device=options.device,
        machine=machine,
        threads=profile.threads,
        tuning=tuning,
        records=store_name(records_of(options)),
        seconds=clock.seconds(),
        versions={**versions(), **profile.software},
        command=options.command,
        power=power,
        timing=boards.lead.timing,
    )


def _before_and_after(
    boards: Boards, compiler: ModelCompiler, model: ImportedModel, planned: PlannedModel
) -> VariantSelection | None:
    """The tuned and the untuned model, measured together; None, with a note, if it fails unrequested."""
    options, clock = compiler.options, compiler.clock
    assert isinstance(options, DeployOptions)
    timing = boards.lead.timing
    if not timing.decides:
        clock.progress.note(f"the device {timing.state}: the tuned model is not timed beside the untuned one")
        return None
    requested = options.needs_energy or bool(options.power_modes)
    assert planned.tuning is not None
    if not requested and compiler.deadline.left_s < comparison_s(planned.tuning.model_s):
        clock.progress.note("no time is left to time the tuned model beside the untuned one: sdk deploy does")
        return None
    try:
        # The budget is spent: a model whose plan on record does not build takes what is on record.
        untuned = replace(options, trials=0, budget_s=0.0, method="auto")
        builder = BundleBuilder(replace(compiler, options=untuned))
        made = builder.compile_planned(model, planned)
        variants = variants_of(builder, made, options.needs_energy)
        settings = comparison_settings(boards.ready(), model, options, clock)
        return compare_variants(settings, variants)
    except (BuildError, EngineError, MeasureError) as error:
        if requested:
            raise
        clock.progress.note(f"the tuned model was not measured as a whole: {one_line(error)}")
        return None
