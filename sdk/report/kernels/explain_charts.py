"""Charts of one kernel's explanation as plain figure descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sdk.report.charts import COLOURS, INK, Chart, make_chart

if TYPE_CHECKING:
    from host.compile.explanation import Explanation, Roofline
    from host.gensor.walk import Step

# A kernel has more decisions than the palette has colours; Okabe and Ito's yellow and two greys follow.
_MANY = (*COLOURS, "#f0e442", "#555555", "#999999", "#7b4173")
_FAINT = "#a8a8a8"
_PATH, _CHOSEN, _MEASURED = "#0072b2", "#d55e00", "#009e73"


def walk_chart(found: Explanation, brief: bool = False) -> Chart | None:
    """Estimated time of every state by step, one line for each walk; the path to the program in colour.

    With `brief`, only the path has points and texts.
    """
    if not found.steps:
        return None
    traces = []
    for number in sorted({step.walk for step in found.steps if step.walk >= 0}):
        mine = [step for step in found.steps if step.walk == number]
        line = _line(f"walk {number + 1}", mine, 0, _FAINT, 1.0, legend=False)
        traces.append({**line, "mode": "lines"} if brief else line)
    if found.path:
        traces.append(_line("the path taken", found.path, 0, _PATH, 2.5, legend=True))
        last = found.path[-1]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "the program",
                "x": [len(found.path)],
                "y": [last.cost_s * 1e6],
                "text": [_state(last)],
                "marker": {"symbol": "star", "size": 14, "color": _CHOSEN},
            }
        )
    chart = make_chart(traces, "step", "estimated microseconds a call", height=420, legend=True)
    chart["layout"]["yaxis"] |= {"type": "log"}
    return chart


def benefit_chart(found: Explanation) -> Chart | None:
    """Benefit of every edge at each state of the path, coloured by decision; the chosen one is ringed."""
    if not found.path:
        return None
    points: dict[str, tuple[list[int], list[float], list[str]]] = {}
    taken: tuple[list[int], list[float], list[str]] = ([], [], [])
    for number, step in enumerate(found.path, start=1):
        for kind, decision, value, benefit in step.benefits:
            name = decision or "next level"
            text = f"{kind} {name}{f' to {value}' if decision else ''}: {benefit:.3g}"
            groups = [points.setdefault(name, ([], [], []))]
            if step.taken == (kind, decision) and _led(step, found.path[number:], decision, value):
                groups.append(taken)
            for series in groups:
                series[0].append(number)
                series[1].append(benefit)
                series[2].append(text)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": series[0],
            "y": series[1],
            "text": series[2],
            "marker": {"size": 7, "color": _MANY[index % len(_MANY)], "opacity": 0.75},
        }
        for index, (name, series) in enumerate(sorted(points.items()))
    ]
    ring = {"size": 14, "color": "none", "line": {"width": 2, "color": INK}}
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "taken",
            "x": taken[0],
            "y": taken[1],
            "text": taken[2],
            "marker": ring,
        }
    )
    chart = make_chart(traces, "step", "benefit: time before / after", height=420, legend=True)
    chart["layout"]["yaxis"] |= {"type": "log"}
    return chart


def _led(step: Step, rest: tuple[Step, ...], decision: str, value: int) -> bool:
    """Whether the next step of the path is where this edge leads; descents have two edges of one name."""
    return not decision or not rest or rest[0].state.decisions.get(decision) == value


def roofline_chart(found: Explanation) -> Chart | None:
    """The processor's limits, the path under them, and the program: as estimated and as measured."""
    roofline = found.roofline
    if not roofline.flops:
        return None
    intensities = [roofline.flops / moved for moved in roofline.bytes_moved.values() if moved]
    intensities += [roofline.flops / moved for moved, _ in found.trail if moved]
    traces = limits(roofline, intensities)
    if found.trail:
        steps = [(roofline.flops / moved, roofline.flops / cost / 1e9) for moved, cost in found.trail]
        second = roofline.hardware.levels[1].name
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"the path, by bytes from {second}",
                "x": [x for x, _ in steps],
                "y": [y for _, y in steps],
                "text": [_state(step) for step in found.path],
                "line": {"width": 1, "color": _PATH},
                "marker": {"size": 5, "color": _PATH, "opacity": 0.6},
            }
        )
    for label, seconds, colour in (
        ("estimated", roofline.estimate_s, _CHOSEN),
        ("measured in the model", roofline.measured_s, _MEASURED),
    ):
        if seconds:
            traces.append(_program(found, label, roofline.flops / seconds / 1e9, colour))
    chart = make_chart(traces, "FLOP per byte", "GFLOP/s", height=460, legend=True)
    chart["layout"]["xaxis"] |= {"type": "log", "rangemode": "normal"}
    chart["layout"]["yaxis"] |= {"type": "log"}
    return chart


def limits(roofline: Roofline, intensities: Sequence[float]) -> list[dict[str, Any]]:
    """Lines of the peak and of each memory level, over all intensities (FLOP per byte)."""
    low, high = min([0.05, *intensities]) / 2, max([100.0, *intensities]) * 2
    peak = roofline.peak_flops / 1e9
    traces = [_limit(f"peak, {peak:.0f} GFLOP/s", [low, high], [peak, peak], INK)]
    for index, (name, bandwidth) in enumerate(roofline.bandwidths.items()):
        rate = bandwidth / 1e9
        line = [low, peak / rate], [low * rate, peak]
        traces.append(_limit(f"{name}, {rate:.0f} GB/s", *line, COLOURS[index % len(COLOURS)]))
    return traces


def shares_chart(found: Explanation) -> Chart | None:
    """The parts of the estimate, in microseconds on one core."""
    if not found.shares:
        return None
    names = list(found.shares)
    values = [found.shares[name] * 1e6 for name in names]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": [name if name in ("compute", "padding") else f"from {name}" for name in names],
        "x": values,
        "text": [f"{value:.3g}" for value in values],
        "marker": {"color": _PATH},
        "showlegend": False,
    }
    return make_chart([trace], "microseconds on one core", height=60 + 30 * len(names))


def _program(found: Explanation, label: str, rate: float, colour: str) -> dict[str, Any]:
    """The program at its distance from each memory level."""
    moved = {name: size for name, size in found.roofline.bytes_moved.items() if size}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{label}: {rate:.1f} GFLOP/s",
        "x": [found.roofline.flops / size for size in moved.values()],
        "y": [rate] * len(moved),
        "text": [f"{size / 1e3:.0f} kB from {name}" for name, size in moved.items()],
        "marker": {"symbol": "star", "size": 13, "color": colour},
    }


def _limit(name: str, x: list[float], y: list[float], colour: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"width": 1.5, "color": colour},
    }


def _line(
    name: str, steps: tuple[Step, ...] | list[Step], first: int, colour: str, width: float, legend: bool
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [first + number for number in range(1, len(steps) + 1)],
        "y": [step.cost_s * 1e6 for step in steps],
        "text": [_state(step) for step in steps],
        "line": {"width": width, "color": colour},
        "marker": {"size": 3 + width, "color": colour},
        "showlegend": legend,
    }


def _state(step: Step) -> str:
    values = ", ".join(f"{name} {value}" for name, value in step.state.values)
    return f"{values}; then {' '.join(part for part in step.taken if part)}"
