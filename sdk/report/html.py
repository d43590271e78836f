"""The report of a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.compile.memory_cap import described
from sdk.report.charts import instructions_chart, kernel_chart, latency_chart, rounds_chart, stage_chart
from sdk.report.compared import headline
from sdk.report.figures import deploy_json
from sdk.report.page import StagedPage, render_page
from sdk.report.power import energy_charts, energy_rows, power_context, throttled
from sdk.report.quantisation.charts import quantisation_charts
from sdk.report.quantisation.language_model import text_lines
from sdk.report.tuning import STOPPED, tuning_charts
from sdk.text import simulation

if TYPE_CHECKING:
    from host.deploy import DeployResult
    from host.model import TensorSpec


def write_report(result: DeployResult, path: Path) -> None:
    """Write the report of a deployment completely or not at all; see `StagedPage.write` and `render_page`."""
    with StagedPage(path) as page:
        page.write(render(result))


def render(result: DeployResult) -> str:
    """The report as text."""
    charts = {
        "latency": latency_chart(result),
        "instructions": instructions_chart(result),
        "rounds": rounds_chart(result),
        "kernels": kernel_chart(result),
        "stages": stage_chart(result),
        **energy_charts(result),
    }
    if result.quantisation is not None:
        charts |= quantisation_charts(result.quantisation)
    if result.tuning is not None:
        charts |= tuning_charts(result.tuning)
    figures = deploy_json(result)
    return render_page(
        "report.html.j2",
        charts,
        result=result,
        simulation=simulation(result.device, result.emulated),
        headline=headline(result),
        memory="" if result.memory is None else described(result.memory),
        rows=[_row(result, name) for name in [result.choice.backend, *result.peers]],
        energies=energy_rows(result),
        any_throttled=bool(throttled(result)),
        throttle_reasons=", ".join(throttled(result)),
        uncounted=", ".join(_uncounted(result)),
        figures=figures,
        since_last=figures["since_last"],
        text_lines=[] if result.text is None else text_lines(result.text),
        stopped=STOPPED,
        **(power_context(result.power) if result.power is not None else {"power": None}),
        shape_text=lambda spec: _shape_text(result, spec),
    )


def _uncounted(result: DeployResult) -> list[str]:
    """Engines whose instructions were not counted."""
    return [
        name
        for name, one in result.contenders.items()
        if one.measurement is not None and one.measurement.instructions is None
    ]


def _shape_text(result: DeployResult, spec: TensorSpec) -> str:
    """The shape of an input or output, with the range where it is open."""
    length = result.signature.length
    span = f"{length.low}..{length.high}" if length is not None else ""
    inputs = spec in result.signature.inputs
    return " x ".join(
        (span if inputs else f"up to {size}") if axis in spec.open else str(size)
        for axis, size in enumerate(spec.shape)
    )


def _row(result: DeployResult, name: str) -> dict[str, Any]:
    """One line of the table of engines."""
    one = result.contenders[name]
    ours = result.measurement.median_s
    row: dict[str, Any] = {
        "engine": name,
        "reason": one.reason,
        "verify": one.verification,
        "measured": False,
    }
    if one.verification is not None and not one.verification.passed:
        row["reason"] = one.verification.message
    if one.measurement is None:
        return row
    measurement = one.measurement
    return row | {
        "measured": True,
        "median": measurement.median_s * 1e3,
        "p10": measurement.p10_s * 1e3,
        "p90": measurement.p90_s * 1e3,
        "n": measurement.n,
        "ratio": measurement.median_s / ours,
        "energy": measurement.energy,
    }
