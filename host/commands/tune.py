"""`sdk tune`: measure programs of a model's kernels on a device, learn from them, and install nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from host.compare.variant_comparison import Field, hold_finals, require_sensor
from host.compile import static_model as compiling
from host.compile.bundle_builder import Maker, check_file, read_model, versions
from host.compile.device_profile import profile_of
from host.compile.kernel_tuning import recall, records_of
from host.compile.static_model import Compiled, one_line
from host.compile.variants import variants_of
from host.deploy.board_group import Boards, device_names
from host.errors import BuildError, EngineError, ImportFailed, MeasureError, UserError
from host.model import ImportedModel
from host.options import DeployOptions
from host.progress import Progress, Silence, StageClock
from host.records.database import store_name

if TYPE_CHECKING:
    from host.compare.operating_points import PowerResult
    from host.tuning.result import TuneResult
    from targets import MachineDescription


@dataclass(frozen=True)
class TunedModel:
    """What `sdk tune` reports.

    Attributes:
        name: of the model.
        device: name of the device.
        machine: what it is.
        threads: that the kernels used.
        tuning: what was found out.
        records: where the records are kept.
        seconds: by stage, with "total".
        versions: by name, of host and device.
        command: the command line.
        power: the tuned model beside the untuned one, and variants and power modes where they were asked for;
            None where the whole model could not be measured.
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
    power: PowerResult | None = None


def tune_model(options: DeployOptions, progress: Progress | None = None) -> TunedModel:
    """Spend a budget of measurements on a model's kernels; deployments to come use what is found.

    Args:
        options: model, device, budget and records; nothing is compared, bundled or installed.
        progress: where stages are told.

    Raises:
        UserError: the request cannot be: file, shape, device, budget.
        ImportFailed, LoweringError: the compiler cannot do it.
        DeviceError: the device went away and does not come back; what was measured is kept.
    """
    options.check()
    if not options.tuned:
        raise UserError("a tuning needs an end: give --trials N or --budget 3m")
    if options.ranged:
        raise UserError("kernels are measured at one length: give one with --shape, not a range")
    check_file(options.model)
    clock = StageClock(progress or Silence())
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        with clock.stage("connect"):
            boards = Boards(device_names(options.device), clock.progress.note, options.wait_s)
        with boards:
            return _tuned(options, boards, clock, Path(folder))


def _tuned(options: DeployOptions, boards: Boards, clock: StageClock, folder: Path) -> TunedModel:
    machine = boards.lead.describe()
    require_sensor(boards.lead, options)
    profile = profile_of(boards.lead, options.threads, clock.progress.note)
    maker = Maker(options, profile, folder, clock, boards.lead, boards.replace, boards.others(profile))
    model = read_model(options, clock)
    if model.module is None:
        raise ImportFailed(model.reason, model.operator)
    lowered = compiling.lower_model(model, profile, clock)
    constructed = compiling.propose(lowered, profile, options.seed, clock)
    plan = recall(constructed, profile, records_of(options))
    plan, tuning = maker.tuning(model).improve(lowered, constructed, plan)
    power = _finals(boards, maker, model, lambda: maker.assembled(model, lowered, plan, constructed, tuning))
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
    )


def _finals(
    boards: Boards, maker: Maker, model: ImportedModel, assemble: Callable[[], Compiled]
) -> PowerResult | None:
    """The tuned model beside the untuned one; None, with a note, where nobody asked and it cannot be done."""
    options, clock = maker.options, maker.clock
    assert isinstance(options, DeployOptions)
    if boards.lead.emulated:
        clock.progress.note("the device is emulated: the tuned model is not timed beside the untuned one")
        return None
    try:
        variants = variants_of(maker, assemble(), options.needs_energy)
        inputs = model.golden[0].inputs
        return hold_finals(
            Field(boards.ready(), model.signature, model.golden, inputs, clock), variants, options
        )
    except (BuildError, EngineError, MeasureError) as error:
        if options.needs_energy or options.power_modes:
            raise
        clock.progress.note(f"the tuned model was not measured as a whole: {one_line(error)}")
        return None
