"""Who won what in a tuning, and how the model's time fell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sdk.report.charts import SOURCE_COLOURS, Chart, make_chart
from sdk.report.page import render_page

if TYPE_CHECKING:
    from host.deployment import TunedModel
    from host.tuning.result import TuneResult

# Shown on a line: what a tuning ended with.
STOPPED = {
    "trials": "all trials were made",
    "time": "the time was up",
    "gain": "little more was to be expected",
    "programs": "no proposer had another program",
}


def tuning_charts(result: TuneResult) -> dict[str, Chart | None]:
    """The charts of a tuning by name."""
    return {"curve": curve_chart(result), "proposals": shares_chart(result)}


def curve_chart(result: TuneResult) -> Chart | None:
    """Estimated time of the model against trials."""
    points = [(trials, seconds) for trials, seconds in result.curve if math.isfinite(seconds)]
    if len(points) < 2:
        return None
    trace = {
        "type": "scatter",
        "mode": "lines",
        "line": {"shape": "hv", "width": 2},
        "x": [trials for trials, _ in points],
        "y": [seconds * 1e3 for _, seconds in points],
        "showlegend": False,
    }
    return make_chart([trace], "trials", "milliseconds a run, sum of kernels", height=320)


def shares_chart(result: TuneResult) -> Chart | None:
    """Whose programs each batch was made of."""
    if not result.shares:
        return None
    names = sorted({name for batch in result.shares for name in batch})
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": list(range(1, len(result.shares) + 1)),
            "y": [batch.get(name, 0) for batch in result.shares],
            "marker": {"color": SOURCE_COLOURS.get(name, "#999999")},
        }
        for name in names
    ]
    chart = make_chart(traces, "batch", "programs", height=280, legend=True)
    chart["layout"]["barmode"] = "stack"
    return chart


def render_tuning(result: TunedModel) -> str:
    """The report of `sdk tune` as text."""
    return render_page(
        "tune.html.j2", tuning_charts(result.tuning), result=result, tuning=result.tuning, stopped=STOPPED
    )
