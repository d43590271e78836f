"""A chart as an SVG picture: axes, legend and marks.

A chart is plain data, with the names of plotly's figures: traces ("box", "bar", "scatter") and a layout
(`sdk.report.charts.make_chart`). Boxes, and bars from left to right, stand at names, all else at numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from sdk.report.drawing.axes import Axis, Bands, span
from sdk.report.drawing.elements import Element, add, dashes, shortened, text, title, width_of
from sdk.report.drawing.marks import (
    Plot,
    Trace,
    draw_bars,
    draw_box,
    draw_columns,
    draw_mark,
    draw_scatter,
)

# A page shows the wide drawing, or the narrow one on a phone.
WIDE_PX, NARROW_PX = 760.0, 360.0
_LABEL_PX = 11.0
_ROW_PX = 20.0
_SWATCH_PX = 22.0
_RIGHT_PX = 14.0
_BELOW_PX = 42.0
_TICK_PX = 70.0

Coloured = Sequence[tuple[Trace, str]]


def picture(chart: Mapping[str, Any], width: float, titles: bool = True) -> Element:
    """An `svg` element.

    Args:
        chart: the figure.
        width: in pixels; the height is the chart's and that of its legend.
        titles: whether marks have texts that a browser shows beside the pointer.

    Raises:
        KeyError: a trace or a symbol is of no kind that can be drawn.
    """
    layout = chart["layout"]
    colours = layout["colorway"]
    traces = [
        (trace, _colour(trace, colours[index % len(colours)])) for index, trace in enumerate(chart["data"])
    ]
    root = ElementTree.Element("svg", {"role": "img"})
    about = layout["xaxis"]["title"]["text"], layout["yaxis"]["title"]["text"]
    title(root, " and ".join(part for part in about if part))
    top = _legend(root, traces, width) if layout["showlegend"] else 6.0
    height = float(layout["height"]) + top
    root.set("viewBox", f"0 0 {width:.0f} {height:.0f}")
    names = _names(layout, chart["data"])
    area = (top, height - _BELOW_PX)
    y: Axis | Bands = Bands(names, *area) if names else _axis(layout["yaxis"], traces, "y", area[::-1])
    left = _left(root, y, layout, width)
    x = _axis(layout["xaxis"], traces, "x", (left, width - _RIGHT_PX), wide=not names)
    _across(root, x, y, layout["xaxis"]["title"]["text"], height)
    _marks(Plot(add(root, "g", fill="none"), x, y, titles), traces, layout)
    return root


def inline(chart: Mapping[str, Any]) -> str:
    """Both drawings for a page, of which its style shows one."""
    drawn = []
    for width, kind in ((WIDE_PX, "wide-drawing"), (NARROW_PX, "narrow-drawing")):
        root = picture(chart, width, titles=width == WIDE_PX)
        root.set("class", kind)
        drawn.append(ElementTree.tostring(root, encoding="unicode"))
    return "".join(drawn)


def _colour(trace: Trace, default: str) -> str:
    own = trace.get("marker", {}).get("color") or trace.get("line", {}).get("color") or default
    return own if isinstance(own, str) else own[0]


def _across_names(trace: Trace) -> bool:
    """Whether a trace lies from left to right at a name."""
    return trace.get("orientation") == "h"


def _names(layout: Mapping[str, Any], traces: Sequence[Trace]) -> tuple[str, ...]:
    """The names of the bands from top to bottom; () for an axis of numbers."""
    lying = [trace for trace in traces if _across_names(trace)]
    order = layout["yaxis"].get("order")
    if order is not None:
        return tuple(order)
    return tuple(
        dict.fromkeys(
            name for trace in lying for name in (trace["y"] if trace["type"] == "bar" else [trace["name"]])
        )
    )


def _axis(
    layout: Mapping[str, Any], traces: Coloured, side: str, ends: tuple[float, float], wide: bool = False
) -> Axis:
    log = layout.get("type") == "log"
    probe = Axis(1.0, 2.0, 0.0, 1.0, log)
    values, zero = [], layout.get("rangemode") == "tozero"
    sums: dict[Any, float] = {}
    for trace, _ in traces:
        bars = trace["type"] == "bar"
        values += [value for value in trace[side] if probe.shows(value)]
        bound = trace.get(f"error_{side}")
        if bound is not None:
            values += [value + up for value, up in zip(trace[side], bound["array"], strict=True)]
        if bars and side == ("x" if _across_names(trace) else "y"):
            for name, value in zip(trace["y" if side == "x" else "x"], trace[side], strict=True):
                sums[name] = sums.get(name, 0.0) + value
            zero = True
        elif bars and wide:
            # Half of a column beside the first and the last.
            values += [min(trace[side]) - 0.6, max(trace[side]) + 0.6]
            zero = False
    return Axis(*span(values + list(sums.values()), log=log, zero=zero), *ends, log)


def _legend(root: Element, traces: Coloured, width: float) -> float:
    """Names of the traces in rows at the top; returns the pixels that they take."""
    x, y = 4.0, 14.0
    group = add(root, "g", class_="legend")
    for trace, colour in traces:
        if not trace.get("showlegend", True):
            continue
        name = shortened(trace["name"], width - _SWATCH_PX - 8)
        if x > 4 and x + _SWATCH_PX + width_of(name) > width:
            x, y = 4.0, y + _ROW_PX
        _swatch(group, trace, colour, (x, y - 4))
        text(group, x + _SWATCH_PX, y, name, fill="currentColor")
        x += _SWATCH_PX + width_of(name) + 12
    return y + 10


def _swatch(group: Element, trace: Trace, colour: str, place: tuple[float, float]) -> None:
    x, y = place
    if trace["type"] == "bar":
        add(group, "rect", x=x + 3, y=y - 5, width=11, height=11, fill=colour)
        return
    style, mode = trace.get("line", {}), trace.get("mode", "lines")
    if "lines" in mode:
        stroke = {"stroke": style.get("color", colour), "stroke_width": max(1.5, style.get("width", 1.5))}
        add(group, "path", d=f"M{x:.0f} {y:.0f}h18", **stroke, stroke_dasharray=dashes(style.get("dash")))
    if "markers" in mode:
        marker = trace.get("marker", {})
        symbols = marker.get("symbol", "circle")
        kind = symbols if isinstance(symbols, str) else "circle"
        draw_mark(group, {**marker, "symbol": kind, "size": 9, "color": colour}, 0, (x + 9, y), colour, "key")


def _left(root: Element, y: Axis | Bands, layout: Mapping[str, Any], width: float) -> float:
    """Labels on the left; returns the pixel at which the plot begins."""
    group = add(root, "g", class_="labels")
    if isinstance(y, Bands):
        widest = max((width_of(name, _LABEL_PX) for name in y.names), default=0.0)
        left = min(widest, 0.38 * width) + 8
        for name in y.names:
            label = text(
                group,
                left - 6,
                y.middle(name) + 4,
                shortened(name, left - 8, _LABEL_PX),
                text_anchor="end",
                font_size=_LABEL_PX,
                fill="currentColor",
            )
            title(label, name)
        return left
    ticks = [(value, f"{value:.6g}") for value in y.ticks(max(2, int((y.begin - y.end) / 50)))]
    left = max(width_of(label, _LABEL_PX) for _, label in ticks) + 28
    for value, number in ticks:
        at = y.at(value)
        add(group, "path", d=f"M{left:.1f} {at:.1f}H{width - _RIGHT_PX:.1f}", class_="rule")
        text(group, left - 5, at + 4, number, text_anchor="end", font_size=_LABEL_PX, fill="currentColor")
    middle = (y.begin + y.end) / 2
    turned = f"translate(12,{middle:.1f}) rotate(-90)"
    text(
        group,
        0,
        0,
        layout["yaxis"]["title"]["text"],
        transform=turned,
        text_anchor="middle",
        fill="currentColor",
    )
    return left


def _across(root: Element, x: Axis, y: Axis | Bands, about: str, height: float) -> None:
    """Rules and numbers along the bottom."""
    group = add(root, "g", class_="labels")
    top, bottom = sorted((y.begin, y.end))
    reached = -1.0
    for value in x.ticks(max(2, int((x.end - x.begin) / _TICK_PX))):
        at, label = x.at(value), f"{value:.6g}"
        add(group, "path", d=f"M{at:.1f} {top:.1f}V{bottom:.1f}", class_="rule")
        half = width_of(label, _LABEL_PX) / 2
        if at - half > reached:
            text(
                group,
                at,
                bottom + 15,
                label,
                text_anchor="middle",
                font_size=_LABEL_PX,
                fill="currentColor",
            )
            reached = at + half + 4
    text(group, (x.begin + x.end) / 2, height - 8, about, text_anchor="middle", fill="currentColor")


def _marks(plot: Plot, traces: Coloured, layout: Mapping[str, Any]) -> None:
    lying = [one for one in traces if one[0]["type"] == "bar" and _across_names(one[0])]
    standing = [one for one in traces if one[0]["type"] == "bar" and not _across_names(one[0])]
    if lying:
        draw_bars(plot, lying, stacked=layout.get("barmode") == "stack")
    if standing:
        draw_columns(plot, standing)
    for trace, colour in traces:
        if trace["type"] != "bar":
            {"box": draw_box, "scatter": draw_scatter}[trace["type"]](plot, trace, colour)
