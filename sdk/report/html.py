"""The report: one HTML file that needs nothing else, drawn by the embedded chart library."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import jinja2

from host.bundle import writing
from host.deployment.folders import make_folders, remove_empty
from host.errors import EdgeError
from sdk.report.charts import energy_chart, kernel_chart, latency_chart, rounds_chart, stage_chart

if TYPE_CHECKING:
    from host.deployment import DeployResult
    from host.model import TensorSpec


class StagedReport:
    """A report beside its place, which appears there when all else is done, or leaves nothing.

    Args:
        path: where the report is to lie.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(f".{path.name}.part")
        self._made: tuple[Path, ...] = ()

    def __enter__(self) -> StagedReport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._partial.replace(self.path)
            return
        self._partial.unlink(missing_ok=True)
        remove_empty(self._made)

    def write(self, result: DeployResult) -> None:
        """Write the report of a deployment beside its place.

        Raises:
            DeviceFull: no space left.
            EdgeError: the chart library is not installed.
        """
        html = render(result)
        with writing(self.path):
            self._made = make_folders(self.path.parent)
            self._partial.write_text(html, encoding="utf-8")


def write_report(result: DeployResult, path: Path) -> None:
    """Write the report of a deployment, whole or not at all; see `StagedReport.write`."""
    with StagedReport(path) as report:
        report.write(result)


def render(result: DeployResult) -> str:
    """The report as text."""
    charts = {
        "latency": latency_chart(result),
        "rounds": rounds_chart(result),
        "kernels": kernel_chart(result),
        "energy": energy_chart(result),
        "stages": stage_chart(result),
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sdk.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("report.html.j2").render(
        result=result,
        rows=[_row(result, name) for name in [result.choice.backend, *result.peers]],
        charts={name: script_json(chart) for name, chart in charts.items() if chart is not None},
        library=chart_library(),
        shape_text=lambda spec: _shape_text(result, spec),
    )


def _shape_text(result: DeployResult, spec: TensorSpec) -> str:
    """The shape of an input or output, with the range where it is open."""
    length = result.signature.length
    span = f"{length.low}..{length.high}" if length is not None else ""
    inputs = spec in result.signature.inputs
    return " x ".join(
        (span if inputs else f"up to {size}") if axis in spec.open else str(size)
        for axis, size in enumerate(spec.shape)
    )


def chart_library() -> str:
    """Source of the chart library, out of the plotly package.

    Raises:
        EdgeError: plotly is not installed.
    """
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise EdgeError("the report needs the package plotly: install edgetlm[host]")
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def script_json(chart: dict[str, Any]) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(chart).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


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
