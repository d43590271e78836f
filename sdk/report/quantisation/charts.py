"""Charts of a quantisation: the front of error and layers in floats, and what each layer loses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sdk.report.charts import COLOURS, Chart, make_chart

if TYPE_CHECKING:
    from host.model.quantisation import Quantisation

_MAX_LAYERS = 40


def quantisation_charts(one: Quantisation) -> dict[str, Chart | None]:
    """The charts of a quantisation by their names; None for one without data."""
    return {"quantisation-front": _front(one), "quantisation-layers": _layers(one)}


def _front(one: Quantisation) -> Chart | None:
    """Error over the number of layers in floats; the model that was made is filled."""
    points = [point for point in one.front if math.isfinite(point.rms)]
    if not points:
        return None
    colours = [COLOURS[0] if point.taken else "none" for point in points]
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "measured",
            "x": [point.kept for point in points],
            "y": [point.rms for point in points],
            "text": [f"{point.float_share:.1%} of the multiply-adds in floats" for point in points],
            "marker": {"size": 10, "color": colours, "line": {"width": 1.5, "color": COLOURS[0]}},
            "line": {"width": 1.2, "color": COLOURS[0]},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "allowed",
            "x": [points[0].kept, points[-1].kept],
            "y": [one.bound, one.bound],
            "line": {"width": 1.2, "dash": "dash", "color": COLOURS[5]},
        },
    ]
    return make_chart(traces, "layers in floats", "rms error of the outputs", height=320, legend=True)


def _layers(one: Quantisation) -> Chart | None:
    """What the layers lose alone, the most first."""
    lost = [layer for layer in one.by_loss() if math.isfinite(layer.alone)][:_MAX_LAYERS]
    if not lost:
        return None
    traces = []
    for quantised, name in ((True, "quantised"), (False, "in floats")):
        mine = [layer for layer in lost if layer.quantised == quantised]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [layer.name for layer in mine],
                "x": [layer.alone for layer in mine],
                "marker": {"color": COLOURS[0] if quantised else COLOURS[1]},
            }
        )
    order = [layer.name for layer in lost]
    chart = make_chart(
        traces,
        "rms error of the outputs where it is quantised alone",
        height=50 + 22 * len(order),
        legend=True,
    )
    chart["layout"]["yaxis"]["order"] = order
    chart["layout"]["barmode"] = "stack"
    return chart
