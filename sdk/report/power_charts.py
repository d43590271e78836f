"""Charts of latency against energy, joules with bounds, and power, temperature, throttling over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sdk.report.charts import COLOURS, INK, Chart, make_chart

if TYPE_CHECKING:
    from host.compare.entrants import EntrantResult
    from host.compare.selection import VariantSelection
    from host.deploy import DeployResult
    from host.model import Measurement
    from host.statistics import Estimate

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "pentagon")
_BAD = "#d55e00"
# The most lines in one chart that can be distinguished.
_MAX_LINES = 12
# Samples of a line that a page needs at its width.
_MAX_SAMPLES = 400


def power_charts(power: VariantSelection, peers: Sequence[EntrantResult] = ()) -> dict[str, Chart | None]:
    """The charts of variants and power modes by name.

    Args:
        power: the measured variants.
        peers: other engines, measured in the original mode of the device.
    """
    points = [*power.points, *peers]
    windows = [(point.title, window) for point in points for window in point.windows]
    return {
        "front": front_chart(power, peers),
        "joules": joules_chart({point.title: point.gross_j for point in points}),
        "power": trace_chart(windows),
        "temperature": temperature_chart(windows),
    }


def front_chart(power: VariantSelection, peers: Sequence[EntrantResult] = ()) -> Chart | None:
    """Every point by latency and energy with its bounds; the front is a line, dominated points hollow."""
    front = power.front
    known = [point for point in (*power.points, *peers) if point.gross_j and point.latency_s]
    if not front.front:
        return None
    modes = list(dict.fromkeys(point.mode for point in known))
    symbols = _symbols(known)
    traces: list[Chart] = []
    if len(front.front) > 1:
        x, y = zip(*map(_milli, front.front), strict=True)
        traces.append(_line("front", x, y, {"color": INK, "dash": "dot"}))
    for index, mode in enumerate(modes):
        mine = [point for point in known if point.mode == mode]
        traces.append(_mode_trace(mine, power, symbols, COLOURS[index % len(COLOURS)]))
    for (variant, threads), symbol in symbols.items():
        # Only in the legend: a variant has the same symbol in every mode.
        name = f"{variant}, {threads} thread{'s' if threads > 1 else ''}"
        marker = {"symbol": symbol, "size": 9, "color": INK}
        traces.append(
            {"type": "scatter", "mode": "markers", "name": name, "x": [None], "y": [None], "marker": marker}
        )
    if power.cap_w is not None:
        # Mean power is energy over time: a cap is a line through the origin, and what is above it too much.
        right, top = (1.05 * max(_milli(point)[axis] for point in known) for axis in (0, 1))
        edge = min(right, top / power.cap_w)
        name = f"cap of {power.cap_w:g} W"
        traces.append(_line(name, (0.0, edge), (0.0, power.cap_w * edge), {"color": _BAD, "width": 1.5}))
    chart = make_chart(traces, "milliseconds a run", "millijoules a run", height=500, legend=True)
    chart["layout"]["yaxis"]["rangemode"] = "tozero"
    return chart


def _symbols(points: Sequence[EntrantResult]) -> dict[tuple[str, int], str]:
    variants = dict.fromkeys((point.name, point.threads) for point in points)
    return {variant: _SYMBOLS[index % len(_SYMBOLS)] for index, variant in enumerate(variants)}


def _mode_trace(
    points: Sequence[EntrantResult],
    power: VariantSelection,
    symbols: Mapping[tuple[str, int], str],
    colour: str,
) -> Chart:
    """The points of one mode."""
    hollow = [point.title in power.front.dominated or not point.deployable for point in points]
    marks = [symbols[point.name, point.threads] for point in points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": points[0].mode or "measured",
        "x": [_milli(point)[0] for point in points],
        "y": [_milli(point)[1] for point in points],
        "text": [_labelled(point, power) for point in points],
        "error_x": _bars([point.latency_s for point in points]),
        "error_y": _bars([point.gross_j for point in points]),
        "marker": {
            "symbol": [f"{mark}-open" if open_ else mark for mark, open_ in zip(marks, hollow, strict=True)],
            "size": [16 if point is power.taken else 10 for point in points],
            "color": [colour if point.trusted else _BAD for point in points],
            # Another colour per point would leave the legend without the mode's.
            "line": {"width": 1.5},
        },
    }


def _labelled(point: EntrantResult, power: VariantSelection) -> str:
    """The name of a point with its remarks."""
    remarks = []
    if point is power.taken:
        remarks.append("deployed")
    if point.title in power.front.dominated:
        remarks.append("dominated")
    if not point.trusted:
        remarks.append("throttled")
    if power.cap_w is not None and not power.allows(point):
        remarks.append("above the cap")
    return point.title + (f" ({', '.join(remarks)})" if remarks else "")


def _milli(point: EntrantResult) -> tuple[float, float]:
    assert point.latency_s is not None and point.gross_j is not None
    return point.latency_s.value * 1e3, point.gross_j.value * 1e3


def _bars(estimates: Sequence[Estimate | None]) -> Chart:
    """Error bars between the bounds in thousandths; of length zero without bounds."""
    known = [
        (one.value, one.low, one.high)
        if one is not None and one.low is not None and one.high is not None
        else (0.0, 0.0, 0.0)
        for one in estimates
    ]
    return {
        "array": [(high - value) * 1e3 for value, _, high in known],
        "arrayminus": [(value - low) * 1e3 for value, low, _ in known],
        "color": INK,
    }


def joules_chart(estimates: Mapping[str, Estimate | None]) -> Chart | None:
    """Energy of a run by name, with its 95% bounds; None where no energy is known."""
    known = {name: one for name, one in estimates.items() if one is not None}
    if not known:
        return None
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [name],
            "x": [one.value * 1e3],
            "text": [f"{one.value * 1e3:.3g}"],
            "error_x": _bars([one]),
            "marker": {"color": COLOURS[0]},
            "showlegend": False,
        }
        for name, one in known.items()
    ]
    return make_chart(traces, "millijoules a run, with 95% bounds", height=60 + 28 * len(known))


def trace_chart(windows: Iterable[tuple[str, Measurement]]) -> Chart | None:
    """Watts against seconds since the window began: the last window of each name, and the idle power."""
    last = {name: window for name, window in windows if window.energy.trace}
    traces = []
    idle = None
    for index, (name, window) in enumerate(list(last.items())[:_MAX_LINES]):
        samples = thinned(window.energy.trace)
        times, watts = [one[0] for one in samples], [one[1] for one in samples]
        dash = "solid" if index < len(COLOURS) else "dash"
        traces.append(_line(name, times, watts, {"width": 1.3, "dash": dash}))
        idle = window.energy.idle_w if idle is None else idle
    if not traces:
        return None
    if idle is not None:
        end = max(trace["x"][-1] for trace in traces)
        traces.append(_line("without work", (0.0, end), (idle, idle), {"color": INK, "dash": "dot"}))
    chart = make_chart(traces, "seconds", "watts", height=340, legend=True)
    chart["layout"]["yaxis"]["rangemode"] = "tozero"
    return chart


def thinned(trace: Sequence[tuple[float, float, float | None]]) -> list[tuple[float, float, float | None]]:
    """At most a few hundred samples, evenly spaced, including the last one."""
    step = -(-len(trace) // _MAX_SAMPLES)
    return [*trace[:-1:step], trace[-1]]


def temperature_chart(windows: Sequence[tuple[str, Measurement]]) -> Chart | None:
    """Hottest zone over the whole run of measurements; windows in which the board throttled are crossed."""
    moments: list[tuple[float, float]] = []
    crossed: list[tuple[float, float, str]] = []
    for name, window in windows:
        for state in (window.state_before, window.state_after):
            hottest, time_s = hottest_c(state), state.get("time_s")
            if hottest is not None and time_s is not None:
                moments.append((float(time_s), hottest))
        if moments and not window.trusted:
            reason = ", ".join(window.throttle_reasons) or window.invalid or "throttled"
            crossed.append((*moments[-1], f"{name}: {reason}"))
    if not moments:
        return None
    begin = min(time_s for time_s, _ in moments)
    moments.sort()
    line = _line("hottest zone", [t - begin for t, _ in moments], [c for _, c in moments], {"width": 1.5})
    traces = [line | {"mode": "lines+markers", "marker": {"size": 4}}]
    if crossed:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "throttled",
                "x": [t - begin for t, _, _ in crossed],
                "y": [c for _, c, _ in crossed],
                "text": [text for _, _, text in crossed],
                "marker": {"symbol": "x", "size": 11, "color": _BAD},
            }
        )
    return make_chart(traces, "seconds", "degrees Celsius", height=300, legend=True)


def hottest_c(state: Mapping[str, Any]) -> float | None:
    """The hottest zone of a device's state; None where it has none that can be read."""
    zones = state.get("temperatures_c")
    return max((float(value) for value in zones.values()), default=None) if zones else None


def _line(name: str, x: Sequence[float], y: Sequence[float], line: Chart) -> Chart:
    return {"type": "scatter", "mode": "lines", "name": name, "x": list(x), "y": list(y), "line": line}


def contender_points(result: DeployResult) -> tuple[EntrantResult, ...]:
    """The engines of the comparison as points of the mode that the device was in, the installed one first."""
    home = result.power.home if result.power is not None else ""
    return tuple(
        replace(result.contenders[name], threads=result.threads, mode=home, deployable=False)
        for name in (result.choice.backend, *result.peers)
    )
