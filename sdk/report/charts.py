"""Charts of a deployment as plain figure descriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from host.deploy import DeployResult, TaskOutcome

# Colour of text and rules: the page's own.
INK = "currentColor"
# Okabe and Ito's palette, whose colours people with colour blindness distinguish.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
SOURCE_COLOURS = {
    "gensor": "#0072b2",
    "tlm": "#009e73",
    "tree": "#56b4e9",
    "evolutionary": "#cc79a7",
    "random": "#e69f00",
    "default": "#d55e00",
}
_MAX_KERNELS = 40

Chart = dict[str, Any]


def latency_chart(result: DeployResult) -> Chart | None:
    """Box plots of the samples of every engine."""
    shown, remark = _within_edge(_samples(result))
    traces = [{"type": "box", "name": name, "x": times, "orientation": "h"} for name, times in shown.items()]
    title = f"milliseconds a run{remark}"
    return make_chart(traces, title, height=50 + 70 * len(traces)) if traces else None


def rounds_chart(result: DeployResult) -> Chart | None:
    """The samples in the order of their measurement, which shows drift of the machine."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": list(range(1, len(times) + 1)),
            "y": times,
            "line": {"width": 1.2},
        }
        for name, times in _within_edge(_samples(result))[0].items()
    ]
    return make_chart(traces, "sample", "milliseconds a run", height=300, legend=True) if traces else None


def kernel_chart(result: DeployResult) -> Chart | None:
    """Time per kernel, coloured by its proposer; the longest first."""
    timed = sorted(
        (task for task in result.tasks if task.latency_us is not None), key=_microseconds, reverse=True
    )
    if not timed:
        return None
    total = sum(_microseconds(task) for task in timed) or 1.0
    shown, rest = timed[:_MAX_KERNELS], timed[_MAX_KERNELS:]
    traces = []
    for source in sorted({task.source for task in shown}):
        mine = [task for task in shown if task.source == source]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": source,
                "y": [task.name for task in mine],
                "x": [_microseconds(task) for task in mine],
                "text": [
                    f"{task.weight} x {task.latency_us:.1f} us, {_microseconds(task) / total:.1%}"
                    for task in mine
                ],
                "marker": {"color": SOURCE_COLOURS.get(source, "#999999")},
            }
        )
    order = [task.name for task in shown]
    if rest:
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": f"{len(rest)} more",
                "y": ["(all others)"],
                "x": [sum(_microseconds(task) for task in rest)],
                "marker": {"color": "#999999"},
            }
        )
        order.append("(all others)")
    chart = make_chart(
        traces, "microseconds in one run of the model", height=50 + 22 * len(order), legend=True
    )
    chart["layout"]["yaxis"]["order"] = order
    chart["layout"]["barmode"] = "stack"
    return chart


def instructions_chart(result: DeployResult) -> Chart | None:
    """Millions of instructions of a run, if an emulator counted them; None otherwise."""
    counted = {
        name: one.measurement.instructions / 1e6
        for name, one in result.contenders.items()
        if one.measurement is not None and one.measurement.instructions is not None
    }
    return _bars(counted, "millions of instructions a run") if counted else None


def stage_chart(result: DeployResult) -> Chart | None:
    """The time of each stage of the deployment."""
    return _bars({name: value for name, value in result.seconds.items() if name != "total"}, "seconds")


def _samples(result: DeployResult) -> dict[str, Sequence[float]]:
    return {
        name: one.measurement.times_s
        for name, one in result.contenders.items()
        if one.measurement is not None
    }


def _within_edge(samples: Mapping[str, Sequence[float]]) -> tuple[dict[str, list[float]], str]:
    """Samples in milliseconds, and a remark on those that were moved to the edge of a chart.

    A few runs that other work of the machine held up would make a chart of empty space. The edge is a quarter
    above what nine of ten runs of any engine take, if the longest run takes more than twice that.
    """
    found = {name: [time * 1e3 for time in times] for name, times in samples.items() if times}
    longest = max((time for times in found.values() for time in times), default=0.0)
    edge = max((1.25 * sorted(times)[int(0.9 * len(times))] for times in found.values()), default=0.0)
    if longest <= 2 * edge:
        return found, ""
    beyond = sum(time > edge for times in found.values() for time in times)
    count = sum(len(times) for times in found.values())
    kept = {name: [min(time, edge) for time in times] for name, times in found.items()}
    return kept, f"; {beyond} of {count} took longer, up to {longest:.3g}, and stand at the edge"


def _microseconds(task: TaskOutcome) -> float:
    return task.weight * (task.latency_us or 0.0)


def _bars(values: Mapping[str, float], title: str) -> Chart:
    names = list(values)
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [values[name] for name in names],
        "text": [f"{values[name]:.3g}" for name in names],
        "showlegend": False,
    }
    return make_chart([trace], title, height=60 + 26 * len(names))


def make_chart(
    traces: list[Chart], x_title: str, y_title: str = "", *, height: int, legend: bool = False
) -> Chart:
    """A figure as `sdk.report.drawing.figure` draws it.

    Args:
        traces: boxes, bars, lines and points.
        x_title: what the axis across has, with its unit.
        y_title: what the other has.
        height: in pixels, without the legend.
        legend: whether the traces are named at the top.
    """
    return {
        "data": traces,
        "layout": {
            "height": height,
            "xaxis": {"title": {"text": x_title}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": y_title}},
            "colorway": list(COLOURS),
            "showlegend": legend,
        },
    }
