"""The picture of a deployment that is passed on beside its page: what was gained, on what, against what."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from sdk.report.compared import headline
from sdk.report.drawing.elements import Element, add, shortened, text, width_of
from sdk.text import without_host_paths

if TYPE_CHECKING:
    from host.deploy import DeployResult

# What sites that show links ask for.
WIDTH, HEIGHT = 1200.0, 630.0
_EDGE = 64.0
_MOST_ENGINES = 4
_PAPER, _INK, _FAINT, _OURS, _OTHERS, _BAD = (
    "#ffffff",
    "#1c2733",
    "#53616f",
    "#0072b2",
    "#b5bec7",
    "#b3261e",
)


def share_picture(result: DeployResult) -> str:
    """An SVG file: the model, the first sentence of the page, and the latency of each engine."""
    size = {"width": f"{WIDTH:.0f}", "height": f"{HEIGHT:.0f}", "viewBox": f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"}
    space = {"xmlns": "http://www.w3.org/2000/svg", "font-family": "system-ui, sans-serif"}
    root = ElementTree.Element("svg", {**space, **size})
    add(root, "rect", width=WIDTH, height=HEIGHT, fill=_PAPER)
    _line(root, 104, result.name, 52, _INK, "bold")
    _line(root, 152, f"{result.device}: {result.processor}", 26, _FAINT)
    simulated = result.timing.banner
    y = _wrapped(root, 216, simulated or headline(result), 34, _BAD if simulated else _INK)
    if result.timing.decides:
        _engines(root, result, y + 24)
    _line(root, HEIGHT - 36, f"EdgeTLM {result.versions.get('edgetlm', '')}   {result.date}", 20, _FAINT)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _line(root: Element, y: float, content: str, size: float, colour: str, weight: str | None = None) -> None:
    shown = shortened(without_host_paths(content), WIDTH - 2 * _EDGE, size)
    text(root, _EDGE, y, shown, font_size=size, fill=colour, font_weight=weight)


def _wrapped(root: Element, y: float, content: str, size: float, colour: str) -> float:
    """Text in lines of the picture's width; returns where the last one stands."""
    line = ""
    for word in [*content.split(), ""]:
        longer = f"{line} {word}".strip()
        if line and (not word or width_of(longer, size) > WIDTH - 2 * _EDGE):
            _line(root, y, line, size, colour)
            y, longer = y + 1.3 * size, word
        line = longer
    return y


def _engines(root: Element, result: DeployResult, top: float) -> None:
    """A bar for each measured engine, the deployed one first."""
    names = [result.choice.backend, *result.peers]
    medians = {
        name: measured.median_s * 1e3
        for name in names
        if (measured := result.contenders[name].measurement) is not None
    }
    shown = list(medians.items())[:_MOST_ENGINES]
    longest = max(medians.values())
    for index, (name, milliseconds) in enumerate(shown):
        y = top + 64 * index
        colour = _OURS if name == result.choice.backend else _OTHERS
        text(root, _EDGE, y + 32, shortened(name, 230, 26), font_size=26, fill=_INK)
        wide = 620 * milliseconds / longest
        add(root, "rect", class_="bar", x=_EDGE + 250, y=y, width=wide, height=46, rx=4, fill=colour)
        text(root, _EDGE + 262 + wide, y + 32, f"{milliseconds:.4g} ms", font_size=26, fill=_INK)
