"""The picture of `sdk explain`: one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from host.bundle import writing
from sdk.report.charts import Chart
from sdk.report.explain_charts import benefit_chart, roofline_chart, shares_chart, walk_chart
from sdk.report.html import chart_library, script_json

if TYPE_CHECKING:
    from host.deployment.explain import Explanation


def write_explanation(found: Explanation, path: Path) -> None:
    """Write the picture, whole or not at all.

    Raises:
        DeviceFull: no space left.
        EdgeError: the chart library is not installed.
    """
    html = render_explanation(found)
    partial = path.with_name(f".{path.name}.part")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_text(html, encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def render_explanation(found: Explanation) -> str:
    """The picture as text."""
    made: dict[str, Chart | None] = {
        "walk": walk_chart(found),
        "benefits": benefit_chart(found),
        "roofline": roofline_chart(found),
        "shares": shares_chart(found),
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sdk.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("explain.html.j2").render(
        found=found,
        kernel=found.kernel,
        roofline=found.roofline,
        hardware=found.roofline.hardware,
        states=len({step.state.key() for step in found.steps}),
        walks=len({step.walk for step in found.steps if step.walk >= 0}),
        charts={name: script_json(chart) for name, chart in made.items() if chart is not None},
        library=chart_library(),
    )
