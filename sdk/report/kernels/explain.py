"""The page of `sdk explain`: one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sdk.report.charts import Chart
from sdk.report.kernels.explain_charts import benefit_chart, roofline_chart, shares_chart, walk_chart
from sdk.report.page import StagedPage, render_page

if TYPE_CHECKING:
    from host.compile.explanation import Explanation


def write_explanation(found: Explanation, path: Path) -> None:
    """Write the page completely or not at all.

    Raises:
        DeviceFull: no space left.
    """
    with StagedPage(path, "--output") as page:
        page.write(render_explanation(found))


def render_explanation(found: Explanation) -> str:
    """The page of an explanation as HTML, with its charts."""
    made: dict[str, Chart | None] = {
        "walk": walk_chart(found),
        "benefits": benefit_chart(found),
        "roofline": roofline_chart(found),
        "shares": shares_chart(found),
    }
    return render_page(
        "explain.html.j2",
        made,
        found=found,
        kernel=found.kernel,
        roofline=found.roofline,
        hardware=found.roofline.hardware,
        states=len({step.state.key() for step in found.steps}),
        walks=len({step.walk for step in found.steps if step.walk >= 0}),
    )
