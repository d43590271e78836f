"""The report of a tuning: wins of each proposer, and the model's time against trials."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sdk.report.charts import SOURCE_COLOURS, Chart, make_chart
from sdk.report.figures import tune_json
from sdk.report.page import render_page
from sdk.report.power import power_context
from sdk.report.power_charts import power_charts

_MAX_KERNELS = 25

if TYPE_CHECKING:
    from host.commands.tune import TunedModel
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
    return {
        "curve": curve_chart(result),
        "proposals": shares_chart(result),
        "tuned-kernels": tuned_kernels_chart(result),
    }


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
    """The number of programs of each proposer in each batch."""
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


def tuned_kernels_chart(result: TuneResult) -> Chart | None:
    """Time of each kernel in a run of the model with the first program measured and the best one."""
    known = [
        (task.name, task.weight * task.first_s * 1e6, task.weight * task.best_s * 1e6)
        for task in result.tasks
        if task.first_s is not None and task.best_s is not None
    ]
    if not known:
        return None
    total = sum(best for _, _, best in known)
    shown = sorted(known, key=lambda one: -one[1])[:_MAX_KERNELS]
    names = [name for name, _, _ in shown]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label,
            "y": names,
            "x": [one[column] for one in shown],
            "text": texts,
            "marker": {"color": colour},
        }
        for label, column, colour, texts in (
            ("first program", 1, "#999999", [""] * len(shown)),
            ("best program", 2, "#0072b2", [f"{best / total:.1%}" for _, _, best in shown]),
        )
    ]
    return make_chart(
        traces, "microseconds in one run of the model", height=60 + 34 * len(shown), legend=True
    )


def render_tuning(result: TunedModel) -> str:
    """The report of `sdk tune` as text."""
    charts = tuning_charts(result.tuning)
    context: dict[str, Any] = {"power": None}
    if result.power is not None:
        charts |= power_charts(result.power)
        context = power_context(result.power)
    return render_page(
        "tune.html.j2",
        charts,
        tune_json(result),
        result=result,
        simulation=result.timing.banner,
        titled=result.timing.titled,
        tuning=result.tuning,
        stopped=STOPPED,
        **context,
    )
