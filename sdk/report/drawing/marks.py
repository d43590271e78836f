"""The marks of one trace inside of a chart's plot: boxes, bars, lines, points and their bounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdk.report.drawing.axes import Axis, Bands
from sdk.report.drawing.elements import (
    FONT_PX,
    Element,
    add,
    dashes,
    digits,
    dots,
    path,
    symbol,
    text,
    title,
    width_of,
)

Trace = Mapping[str, Any]
# A bar takes this share of its band.
_FILLED = 0.76
# A distance over which points of a box are spread: the fraction of the golden ratio repeats last of all.
_SPREAD = 0.6180339887
# Above this relative luminance L black letters have the greater contrast, below it white ones: WCAG 2.2 has
# (L + 0.05) / 0.05 and 1.05 / (L + 0.05), which are equal here, 4.58.
_BRIGHT = 0.179
_CAP_PX = 4.0


@dataclass(frozen=True)
class Plot:
    """The area and the axes in which marks are drawn.

    Attributes:
        layer: their element.
        x: numbers across.
        y: numbers upwards, or names downwards.
        titles: whether marks have texts that a browser shows beside the pointer.
    """

    layer: Element
    x: Axis
    y: Axis | Bands
    titles: bool

    def named(self, mark: Element, content: str) -> None:
        """Give a mark its text."""
        if self.titles and content:
            title(mark, content)


def draw_box(plot: Plot, trace: Trace, colour: str) -> None:
    """All samples, their quartiles, and whiskers to the last sample within 1.5 quartile ranges (Tukey)."""
    assert isinstance(plot.y, Bands)
    values = sorted(trace["x"])
    middle, half = plot.y.middle(trace["name"]), plot.y.size * _FILLED / 2
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if values[1:] else values * 3
    reach = 1.5 * (high - low)
    first = next(value for value in values if value >= low - reach)
    last = next(value for value in reversed(values) if value <= high + reach)
    spread = [middle + (index * _SPREAD % 1 - 0.5) * half for index in range(len(values))]
    points = zip(map(plot.x.at, trace["x"]), spread, strict=True)
    add(plot.layer, "path", class_="samples", d=dots(points), stroke=colour, stroke_width=4)
    left, right, line = (plot.x.at(value) for value in (low, high, median))
    top, bottom = digits(middle - half), digits(middle + half)
    outline = f"M{digits(left)} {top}H{digits(right)}V{bottom}H{digits(left)}ZM{digits(line)} {top}V{bottom}"
    at = digits(middle)
    whiskers = (
        f"M{digits(plot.x.at(first))} {at}H{digits(left)}M{digits(right)} {at}H{digits(plot.x.at(last))}"
    )
    box = add(plot.layer, "path", class_="box", d=outline + whiskers, stroke=colour, stroke_width=1.5)
    plot.named(box, f"{trace['name']}: {low:.4g}, {median:.4g}, {high:.4g} (quartiles), n {len(values)}")


def draw_bars(plot: Plot, traces: Sequence[tuple[Trace, str]], *, stacked: bool) -> None:
    """Bars from left to right, one trace beside the other or after it."""
    assert isinstance(plot.y, Bands)
    reached: dict[str, float] = {}
    several = not stacked and len({name for trace, _ in traces for name in trace["y"]}) < sum(
        len(trace["y"]) for trace, _ in traces
    )
    height = plot.y.size * _FILLED / (len(traces) if several else 1)
    for number, (trace, colour) in enumerate(traces):
        texts = trace.get("text") or [""] * len(trace["x"])
        for index, (name, value, content) in enumerate(zip(trace["y"], trace["x"], texts, strict=True)):
            begin = reached.get(name, 0.0) if stacked else 0.0
            reached[name] = begin + value
            top = plot.y.middle(name) - plot.y.size * _FILLED / 2 + (number * height if several else 0)
            left, right = plot.x.at(begin), plot.x.at(begin + value)
            outline = f"M{digits(left)} {digits(top)}H{digits(right)}v{digits(height)}H{digits(left)}Z"
            bar = add(plot.layer, "path", class_="bar", d=outline, fill=colour)
            label = trace.get("name", "") if trace.get("showlegend", True) else ""
            plot.named(bar, ": ".join(part for part in (name, label, content or f"{value:.4g}") if part))
            end = right
            if "error_x" in trace:
                end = max(end, _bound(plot, trace["error_x"], index, (value, top + height / 2), across=True))
            _label(plot, content, (left, right, end), top + height / 2, colour)


def _label(plot: Plot, content: str, ends: tuple[float, float, float], y: float, colour: str) -> None:
    """A bar's text: inside where it fits, else after it and its bounds, else nowhere."""
    left, right, end = ends
    size = FONT_PX - 1
    wide = width_of(content, size) + 8
    if not content:
        return
    if wide <= right - left:
        text(plot.layer, left + 4, y + 4, content, font_size=size, fill=_text_colour_on(colour))
    elif end + wide <= plot.x.end + 8:
        text(plot.layer, end + 4, y + 4, content, font_size=size, fill="currentColor")


def _text_colour_on(colour: str) -> str:
    """Black or white, whichever is read better on a colour."""

    def linear(at: int) -> float:
        value = int(colour[at : at + 2], 16) / 255
        return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)

    luminance = 0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5)
    return "#000000" if luminance > _BRIGHT else "#ffffff"


def draw_columns(plot: Plot, traces: Sequence[tuple[Trace, str]]) -> None:
    """Bars upwards, one trace on top of the other."""
    assert isinstance(plot.y, Axis)
    reached: dict[float, float] = {}
    wide = _FILLED * abs(plot.x.at(1) - plot.x.at(0))
    for trace, colour in traces:
        for x, value in zip(trace["x"], trace["y"], strict=True):
            begin = reached.get(x, 0.0)
            reached[x] = begin + value
            left, bottom, top = plot.x.at(x) - wide / 2, plot.y.at(begin), plot.y.at(begin + value)
            outline = f"M{digits(left)} {digits(bottom)}V{digits(top)}h{digits(wide)}V{digits(bottom)}Z"
            bar = add(plot.layer, "path", class_="bar", d=outline, fill=colour)
            plot.named(bar, f"{x}: {trace['name']}, {value:.4g}")


def draw_scatter(plot: Plot, trace: Trace, colour: str) -> None:
    """A line, points, or both; points without a place on the axes are left out."""
    assert isinstance(plot.y, Axis)
    known = [
        (index, x, y)
        for index, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True))
        if plot.x.shows(x) and plot.y.shows(y)
    ]
    if "lines" in trace["mode"] and known:
        style = trace.get("line", {})
        outline = path([(plot.x.at(x), plot.y.at(y)) for _, x, y in known], style.get("shape") == "hv")
        line = add(
            plot.layer,
            "path",
            class_="line",
            d=outline,
            stroke=style.get("color", colour),
            stroke_width=style.get("width", 1.5),
            stroke_dasharray=dashes(style.get("dash")),
        )
        plot.named(line, trace.get("name", ""))
    if "markers" not in trace["mode"]:
        return
    for index, x, y in known:
        for side, across in (("error_x", True), ("error_y", False)):
            if side in trace:
                place = (x, plot.y.at(y)) if across else (y, plot.x.at(x))
                _bound(plot, trace[side], index, place, across=across)
        mark = draw_mark(
            plot.layer, trace.get("marker", {}), index, (plot.x.at(x), plot.y.at(y)), colour, "point"
        )
        texts = trace.get("text")
        plot.named(mark, f"{texts[index] if texts else trace.get('name', '')}: {x:.4g}, {y:.4g}")


def draw_mark(
    layer: Element, marker: Mapping[str, Any], index: int, place: tuple[float, float], colour: str, kind: str
) -> Element:
    """One mark, whose size, colour and symbol are those of its trace or its own."""

    def own(name: str, default: Any) -> Any:
        value = marker.get(name, default)
        return value[index] if isinstance(value, list | tuple) else value

    shape, filling = own("symbol", "circle"), own("color", colour)
    hollow = shape.endswith("-open")
    edge = marker.get("line", {})
    return add(
        layer,
        "path",
        class_=kind,
        d=symbol(shape.removesuffix("-open"), *place, own("size", 6)),
        fill="none" if hollow else filling,
        stroke=edge.get("color", filling) if edge or hollow else None,
        stroke_width=edge.get("width", 1.5) if edge or hollow else None,
        opacity=marker.get("opacity"),
    )


def _bound(
    plot: Plot, bars: Mapping[str, Any], index: int, place: tuple[float, float], *, across: bool
) -> float:
    """A bar between two bounds, with ends.

    Args:
        plot: of the trace.
        bars: lengths of the bars by index, in the unit of the axis, and their colour.
        index: of the bar.
        place: the value, and the pixel on the other axis.
        across: whether the bounds are of x.

    Returns:
        the pixel of the upper bound.
    """
    value, other = place
    axis = plot.x if across else plot.y
    assert isinstance(axis, Axis)
    below, above = value - bars["arrayminus"][index], value + bars["array"][index]
    if not axis.shows(below) or below == above:
        return axis.at(value)
    low, high, at = axis.at(below), axis.at(above), digits(other)
    begin, end = digits(other - _CAP_PX), digits(other + _CAP_PX)
    parts = (
        f"M{digits(low)} {begin}V{end}M{digits(low)} {at}H{digits(high)}M{digits(high)} {begin}V{end}"
        if across
        else f"M{begin} {digits(low)}H{end}M{at} {digits(low)}V{digits(high)}M{begin} {digits(high)}H{end}"
    )
    add(plot.layer, "path", class_="bound", d=parts, stroke=bars["color"], stroke_width=1.2)
    return high
