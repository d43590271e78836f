"""The model that kernels are measured in: built once with the programs to improve on."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from host import bundle
from host.compile.bundle_draft import draft_of
from host.compile.ranged_model import inputs_to_measure
from host.compile.static_model import Plan, defects_as, scheduled_kernels
from host.errors import BuildError
from host.model import DeviceProfile, ImportedModel, LoweredModel
from host.options import CompileOptions
from host.progress import StageClock
from host.records import MODEL, RecordStore
from host.records.store import profile_data

if TYPE_CHECKING:
    from host.tuning.runners.in_model import KernelsInModel


def kernels_in_model(
    model: ImportedModel,
    lowered: LoweredModel,
    plan: Plan,
    profile: DeviceProfile,
    options: CompileOptions,
    folder: Path,
    store: RecordStore,
    clock: StageClock,
) -> KernelsInModel:
    """Build the model with the programs of a plan, and what measures other programs inside of it.

    Args:
        model: the imported model.
        lowered: the same, lowered.
        plan: the reference programs.
        profile: of the device.
        options: of the command.
        folder: for the bundle and for libraries.
        store: of the records, which know times of reference programs.
        clock: counts the stage.

    Raises:
        BuildError: the model does not compile.
        DeviceFull: no space left.
    """
    from host.build import KernelCache, VariantLinker
    from host.tuning.runners.connection import ReferenceModel
    from host.tuning.runners.in_model import KernelsInModel

    with clock.stage("build"), defects_as(BuildError, f"building {lowered.name}"):
        kernels, failed = scheduled_kernels(lowered.tasks, plan)
        linker = VariantLinker(lowered, kernels, folder, KernelCache())
        reference = folder / "reference"
        library = linker.link({}, folder / "reference.so")
        bundle.write_tvm(
            reference, draft_of(model, options, profile, "tvm"), library, lowered.parameters, model.golden
        )
    [inputs] = inputs_to_measure(model.signature, model.golden)
    chosen = {key: candidate for key, candidate in plan.chosen.items() if key not in failed}
    return KernelsInModel(
        linker,
        ReferenceModel(reference, inputs),
        library,
        chosen,
        _recorded_s(lowered, plan, profile, store),
        folder,
    )


def _recorded_s(
    lowered: LoweredModel, plan: Plan, profile: DeviceProfile, store: RecordStore
) -> Mapping[str, float]:
    """Seconds inside of a model of the plan's programs that have a record, by the kernel's name."""
    data = profile_data(profile)
    known: dict[str, float] = {}
    for task in lowered.tasks:
        chosen = plan.chosen.get(task.workload_hash)
        if chosen is None:
            continue
        program = (chosen.rule, chosen.space_version, chosen.decisions)
        times_s = [
            record.median_s
            for record in store.history(task.workload_hash, data)
            if record.origin.measured_in == MODEL
            and (record.candidate.rule, record.candidate.space_version, record.candidate.decisions) == program
            and record.median_s is not None
        ]
        if times_s:
            known[task.name] = statistics.fmean(times_s)
    return known
