"""Charts of made-up results, which stay what they are."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from host.compare.entrants import EntrantResult
from host.deploy import DeployResult
from sdk.report.charts import kernel_chart, latency_chart, rounds_chart, stage_chart
from sdk.report.drawing.figure import NARROW_PX, WIDE_PX, picture
from sdk.report.drawing.share import share_picture
from sdk.report.power import energy_charts
from tests.unit.compare.samples import measurement, result, task
from tests.unit.sdk.report.power_result import deployment, sweep


def drawings(ours_ms: float = 2.0) -> dict[str, str]:
    """SVG by name.

    Args:
        ours_ms: milliseconds of the deployed model.
    """
    one = _result(ours_ms)
    front = energy_charts(deployment(sweep(cap_w=7.0)))
    charts = {
        "latency": latency_chart(one),
        "rounds": rounds_chart(one),
        "kernels": kernel_chart(one),
        "stages": stage_chart(one),
        **{name: chart for name, chart in front.items() if name in ("front", "modes")},
    }
    made = {"share": share_picture(one)}
    for name, chart in charts.items():
        if chart is not None:
            for kind, width in (("wide", WIDE_PX), ("narrow", NARROW_PX)):
                made[f"{name}-{kind}"] = ElementTree.tostring(picture(chart, width), encoding="unicode")
    return made


def _result(ours_ms: float) -> DeployResult:
    one = result()
    ours = EntrantResult("tvm", measurement(ours_ms), one.contenders["tvm"].verification)
    tasks = tuple(task(f"kernel_{index}", "gensor", 1, 40.0 * ours_ms * (index + 1)) for index in range(5))
    return replace(one, contenders={**one.contenders, "tvm": ours}, tasks=(*tasks, *one.tasks))
