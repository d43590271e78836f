"""SVG elements, and how wide a text is without the fonts of the reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import cos, pi, sin
from xml.etree import ElementTree

from sdk.text import visible_line

Element = ElementTree.Element
Point = tuple[float, float]

FONT_PX = 12.0
# Widths of letters by their size, those of DejaVu Sans, which is wider than most; others are as wide as high.
_WIDTHS = (("fijlt.,:;'|!/ ()[]-\\", 0.4), ("mwMW%@&", 1.0), ("<>=+~^#_*", 0.84))
_SMALL, _CAPITAL, _OTHER = 0.64, 0.79, 1.0
_ELLIPSIS = "…"
_DASHES = {"dot": "2 3", "dash": "7 4"}


def add(parent: Element, tag: str, **attributes: object) -> Element:
    """A new child; `_` in names of attributes is `-`, and None leaves one out."""
    return ElementTree.SubElement(
        parent,
        tag,
        {
            name.rstrip("_").replace("_", "-"): _shown(value)
            for name, value in attributes.items()
            if value is not None
        },
    )


def _shown(value: object) -> str:
    return digits(value) if isinstance(value, float) else str(value)


def digits(value: float) -> str:
    """A length in pixels as text, rounded to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def text(parent: Element, x: float, y: float, content: str, **attributes: object) -> Element:
    """A line of text with hidden characters shown."""
    element = add(parent, "text", x=x, y=y, **attributes)
    element.text = visible_line(content)
    return element


def title(parent: Element, content: str) -> None:
    """Give the parent the text that a browser shows beside the pointer."""
    add(parent, "title").text = visible_line(content)


def width_of(content: str, size: float = FONT_PX) -> float:
    """An upper estimate of the width of a text in pixels."""
    return size * sum(map(_letter_width, visible_line(content)))


def _letter_width(letter: str) -> float:
    for letters, width in _WIDTHS:
        if letter in letters:
            return width
    if not letter.isascii():
        return _OTHER
    return _CAPITAL if letter.isupper() else _SMALL


def shortened(content: str, width: float, size: float = FONT_PX) -> str:
    """The text with its middle left out where it is wider than `width` pixels."""
    shown = visible_line(content)
    if width_of(shown, size) <= width + 0.01:
        return shown
    # Its ends grow by turns until there is no room.
    begin, end, room = 0, len(shown), width - _OTHER * size
    while begin < end:
        letter = shown[begin] if begin <= len(shown) - end else shown[end - 1]
        room -= size * _letter_width(letter)
        if room < 0:
            break
        begin, end = (begin + 1, end) if begin <= len(shown) - end else (begin, end - 1)
    return shown[:begin] + _ELLIPSIS + shown[end:]


def path(points: Sequence[Point], steps: bool = False) -> str:
    """An open outline through points; with `steps` across first, then up or down."""
    parts = [f"M{digits(points[0][0])} {digits(points[0][1])}"]
    for x, y in points[1:] if steps else _seen(points)[1:]:
        parts.append(f"H{digits(x)}V{digits(y)}" if steps else f"L{digits(x)} {digits(y)}")
    return "".join(parts)


def _seen(points: Sequence[Point]) -> list[Point]:
    """Of the points that follow each other within one pixel across, those that a line shows.

    These are the first, the lowest, the highest and the last one (Jugel et al., "M4", VLDB 2014).
    """
    kept: list[Point] = []
    for _, group in groupby(points, key=lambda point: int(point[0])):
        column = list(group)
        ends = {0, len(column) - 1}
        ends |= {choose(range(len(column)), key=lambda at: column[at][1]) for choose in (min, max)}
        kept += [column[at] for at in sorted(ends)]
    return kept


def dots(points: Iterable[Point]) -> str:
    """Lines of no length, which round ends make dots; those in one pixel are one."""
    places = dict.fromkeys((round(x), round(y)) for x, y in points)
    return "".join(f"M{x} {y}h0" for x, y in places)


def dashes(kind: str | None) -> str | None:
    """`stroke-dasharray` of a kind of line ("solid", "dot", "dash")."""
    return _DASHES.get(kind or "")


def symbol(kind: str, x: float, y: float, size: float) -> str:
    """The closed outline of a mark of `size` pixels around a point.

    Raises:
        KeyError: there is no such symbol.
    """
    radius = size / 2
    if kind == "circle":
        arc = f"a{digits(radius)} {digits(radius)} 0 1 0"
        return f"M{digits(x - radius)} {digits(y)}{arc} {digits(size)} 0{arc} {digits(-size)} 0Z"
    corners = _corners(kind)
    return path([(x + radius * a, y + radius * b) for a, b in corners]) + "Z"


def _corners(kind: str) -> list[Point]:
    if kind == "x":
        arm, gap = 1.0, 0.35
        quarter = [(0.0, -gap), (arm - gap, -arm), (arm, gap - arm), (gap, 0.0)]
        turns = ((1, 1), (1, -1), (-1, -1), (-1, 1))
        return [
            (sx * a, sy * b)
            for index, (sx, sy) in enumerate(turns)
            for a, b in (quarter if index % 2 == 0 else quarter[::-1])
        ]
    shapes: dict[str, list[Point]] = {
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "diamond": [(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)],
        "triangle-up": _around(3, 1.2),
        "pentagon": _around(5, 1.1),
        "star": [
            (radius * a, radius * b)
            for index, (a, b) in enumerate(_around(10, 1.0))
            for radius in ((1.3, 0.55)[index % 2],)
        ],
    }
    return shapes[kind]


def _around(corners: int, radius: float) -> list[Point]:
    angles = [2 * pi * index / corners for index in range(corners)]
    return [(radius * sin(angle), -radius * cos(angle)) for angle in angles]
