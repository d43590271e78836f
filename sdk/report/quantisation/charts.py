"""Charts of what narrower numbers lose: the front of the error, and what each layer loses alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sdk.report.charts import COLOURS, Chart, make_chart

if TYPE_CHECKING:
    from host.model.numeric_types import NumericTypes
    from host.model.quantisation import FrontPoint, Quantisation

_MAX_LAYERS = 40


def quantisation_charts(one: Quantisation) -> dict[str, Chart | None]:
    """The charts of a quantisation by their names; None for one without data."""
    return {"quantisation-front": _front(one), "quantisation-layers": _layers(one)}


def type_charts(one: NumericTypes) -> dict[str, Chart | None]:
    """The charts of a search for types by their names; None for one without data."""
    return {"types-front": _types_front(one), "types-layers": _types_layers(one)}


def _front(one: Quantisation) -> Chart | None:
    """Error over the number of layers in floats; the model that was made is filled."""
    points = [point for point in one.front if math.isfinite(point.error)]
    texts = [f"{point.wide_share:.1%} of the multiply-adds in floats" for point in points]
    places = [float(point.kept) for point in points]
    return _points(points, places, texts, one.bound, ("layers in floats", "rms error of the outputs"))


def _types_front(one: NumericTypes) -> Chart | None:
    """Error over the estimated time; the model that was made is filled."""
    known = [point for point in one.front if math.isfinite(point.error) and point.estimate_s is not None]
    points = sorted(known, key=lambda point: (point.estimate_s or 0.0, point.error))
    texts = [f"{point.kept} layers in fp32" for point in points]
    places = [1e3 * (point.estimate_s or 0.0) for point in points]
    titles = ("estimated milliseconds of a run", "largest error of the outputs")
    return _points(points, places, texts, one.tolerance, titles, lines=False)


def _points(
    points: Sequence[FrontPoint],
    places: Sequence[float],
    texts: Sequence[str],
    bound: float,
    titles: tuple[str, str],
    lines: bool = True,
) -> Chart | None:
    """Errors over something else, with the error that is allowed; None without points.

    Args:
        points: with finite errors.
        places: of the points, across.
        texts: of the points.
        bound: of the error.
        titles: of both axes.
        lines: whether the points are one series.
    """
    if not points:
        return None
    colours = [COLOURS[0] if point.taken else "none" for point in points]
    traces: list[Chart] = [
        {
            "type": "scatter",
            "mode": "lines+markers" if lines else "markers",
            "name": "measured",
            "x": list(places),
            "y": [point.error for point in points],
            "text": list(texts),
            "marker": {"size": 10, "color": colours, "line": {"width": 1.5, "color": COLOURS[0]}},
            "line": {"width": 1.2, "color": COLOURS[0]},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "allowed",
            "x": [places[0], places[-1]],
            "y": [bound, bound],
            "line": {"width": 1.2, "dash": "dash", "color": COLOURS[5]},
        },
    ]
    return make_chart(traces, *titles, height=320, legend=True)


def _layers(one: Quantisation) -> Chart | None:
    """What the layers lose alone, the most first."""
    lost = [(layer.name, layer.alone, layer.quantised) for layer in one.by_loss()]
    return _alone(lost, ("quantised", "in floats"), "rms error of the outputs where it is quantised alone")


def _types_layers(one: NumericTypes) -> Chart | None:
    """What the layers lose alone, the most first; None where they were not measured alone."""
    lost = [(layer.name, layer.alone, layer.half) for layer in one.by_loss() if layer.alone is not None]
    return _alone(lost, (one.half, "fp32"), f"error of the outputs where it is in {one.half} alone")


def _alone(lost: Sequence[tuple[str, float, bool]], kinds: tuple[str, str], title: str) -> Chart | None:
    """Bars of what layers lose alone.

    Args:
        lost: names, errors and whether the layer is in the narrower type, the largest error first.
        kinds: names of the narrower type and of the wider one.
        title: of the error.
    """
    lost = [one for one in lost if math.isfinite(one[1])][:_MAX_LAYERS]
    if not lost:
        return None
    traces = []
    for narrow, kind in zip((True, False), kinds, strict=True):
        mine = [(name, error) for name, error, narrowed in lost if narrowed == narrow]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": kind,
                "y": [name for name, _ in mine],
                "x": [error for _, error in mine],
                "marker": {"color": COLOURS[0] if narrow else COLOURS[1]},
            }
        )
    order = [name for name, _, _ in lost]
    chart = make_chart(traces, title, height=50 + 22 * len(order), legend=True)
    chart["layout"]["yaxis"]["order"] = order
    chart["layout"]["barmode"] = "stack"
    return chart
