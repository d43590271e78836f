"""The picture of latency against measurements.

    python -m benchmarks.curves EVALUATION.json -o docs/curves.svg [--beside NAME=FILE ...]

EVALUATION.json is what `sdk tlm evaluate --json` writes. `--beside` adds the language model's curve of
another evaluation, for example with a checkpoint that was fine-tuned before.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

_NAMES = {
    "tlm": "TLM",
    "tlm-finetuned": "TLM, learning between measurements",
    "gensor": "Gensor",
    "tree": "Gensor's tree",
    "random": "random sampling",
    "evolutionary": "evolutionary search",
}
# Okabe and Ito's.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#777777", "#e69f00", "#56b4e9")
_WIDTH, _HEIGHT, _COLUMNS = 420, 280, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 34, 40
_LEGEND = 22
# Latencies above so many times the searched one lie on the upper edge.
_MOST = 3.0

Curve = Sequence[tuple[float, float]]


def curves_of(entry: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Latency relative to the searched program's by number of measurements, by name of the method."""
    found: dict[str, list[tuple[float, float]]] = {}
    for method, points in entry["curves"].items():
        pairs = points if method == "evolutionary" else enumerate(points, 1)
        known = [(float(number), 1.0 / ratio) for number, ratio in pairs if ratio > 0]
        if known:
            found[_NAMES.get(method, method)] = known
    return found


def picture(networks: Mapping[str, Mapping[str, Curve]]) -> str:
    """The picture as SVG, a panel a network.

    Args:
        networks: curves by name, by network.
    """
    names = list(dict.fromkeys(name for curves in networks.values() for name in curves))
    colours = dict(zip(names, _COLOURS, strict=False))
    most = max(x for curves in networks.values() for curve in curves.values() for x, _ in curve)
    columns = min(_COLUMNS, len(networks))
    rows = -(-len(networks) // columns)
    width = columns * _WIDTH
    height = rows * _HEIGHT + len(names) * _LEGEND + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (network, curves) in enumerate(networks.items()):
        x, y = number % columns * _WIDTH, number // columns * _HEIGHT
        parts.append(f'<g transform="translate({x},{y})">')
        parts += [
            *_axes(network, most),
            *(_line(curve, colours[name], most) for name, curve in curves.items()),
        ]
        parts.append("</g>")
    for number, name in enumerate(names):
        y = rows * _HEIGHT + number * _LEGEND + 12
        parts.append(f'<path d="M{_LEFT} {y}h28" stroke="{colours[name]}" stroke-width="2.5"/>')
        parts.append(f'<text x="{_LEFT + 36}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(number: float, most: float) -> float:
    inner = _WIDTH - _LEFT - _RIGHT
    return _LEFT + inner * math.log(number) / math.log(max(most, 2.0))


def _y(latency: float) -> float:
    inner = _HEIGHT - _TOP - _BOTTOM
    least = 0.8
    share = (math.log(min(max(latency, least), _MOST)) - math.log(least)) / math.log(_MOST / least)
    return _TOP + inner * (1.0 - share)


def _axes(network: str, most: float) -> Iterator[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    yield f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(network)}</text>'
    for latency in (0.8, 1.0, 1.25, 1.5, 2.0, 3.0):
        y = _y(latency)
        colour = "#555555" if latency == 1.0 else "#dddddd"
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="{colour}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{latency:g}</text>'
    number = 1
    while number <= most:
        x = _x(number, most)
        yield f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#eeeeee"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{number}</text>'
        number *= 4
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle}" y="{bottom + 33}" text-anchor="middle">measurements a task</text>'
    centre = (_TOP + bottom) / 2
    yield (
        f'<text transform="translate(14,{centre}) rotate(-90)" text-anchor="middle">'
        "latency, searched program = 1</text>"
    )


def _line(curve: Curve, colour: str, most: float) -> str:
    # Steps: between two measurements the best program stays what it was.
    path = ""
    for number, latency in curve:
        x, y = _x(number, most), _y(latency)
        path += f"H{x:.1f}V{y:.1f}" if path else f"M{x:.1f} {y:.1f}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves", description=__doc__)
    parser.add_argument("evaluation", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=FILE")
    options = parser.parse_args(arguments)
    figures = json.loads(options.evaluation.read_text())
    networks = {name: curves_of(entry) for name, entry in figures["networks"].items() if "error" not in entry}
    for text in options.beside:
        name, _, path = text.partition("=")
        for network, entry in json.loads(Path(path).read_text())["networks"].items():
            if network in networks and "error" not in entry:
                networks[network][name] = curves_of(entry)[_NAMES["tlm"]]
    options.out.write_text(picture(networks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
