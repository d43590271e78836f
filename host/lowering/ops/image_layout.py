"""Layouts of images: operators with channels get them last, between two transposes.

The transposes are written out where operators are read, and cancelled by `sink_transposes`.
"""

from __future__ import annotations

SPATIAL = "DHW"


def order(source: str, target: str) -> list[int]:
    """Axes that bring a tensor of layout `source` to layout `target`."""
    return [source.index(letter) for letter in target]


def channels_last(layout: str) -> str:
    """The layout with the batch first, the channels last and the same order of the rest."""
    return "N" + "".join(letter for letter in layout if letter in SPATIAL) + "C"


def plain(*layouts: str) -> bool:
    """Whether layouts hold nothing but whole dimensions, not blocks of them."""
    return all(set(layout) <= set("NCDHW") for layout in layouts)


def integers(values: object) -> tuple[int, ...]:
    """Numbers of a relax attribute."""
    return tuple(int(value) for value in values)  # type: ignore[attr-defined]
