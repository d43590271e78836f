"""The settings of a comparison, from the options of a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host.compare.comparison import ComparisonSettings
from host.compile.ranged_model import inputs_to_measure
from host.model import ImportedModel
from host.options import DeployOptions
from host.progress import StageClock

if TYPE_CHECKING:
    from host.transport import Device


def comparison_settings(
    device: Device, model: ImportedModel, options: DeployOptions, clock: StageClock
) -> ComparisonSettings:
    """The settings for comparing variants of a model, or engines that run it."""
    return ComparisonSettings(
        device=device,
        signature=model.signature,
        golden=model.golden,
        inputs=inputs_to_measure(model.signature, model.golden),
        clock=clock,
        rounds=options.rounds,
        objective=options.objective,
        power_cap_w=options.power_cap_w,
        power_modes=options.power_modes,
    )
