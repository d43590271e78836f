"""All kernels of a model under the limits of the processor, and the walks to the costliest ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sdk.report.charts import SOURCE_COLOURS, Chart, make_chart
from sdk.report.kernels.explain_charts import limits, walk_chart

if TYPE_CHECKING:
    from host.compile.explanation import Explanation, Roofline

# A mark of a kernel has an area that grows with its share of the time, between two sizes in pixels.
_LEAST_PX, _MOST_PX = 5.0, 20.0
_SOURCES = {
    "calibrated": "as sdk devices calibrate measured them on this device",
    "detected": "as the kind of the processor has them, which was detected; nothing was calibrated",
    "declared": "as the file of the board declares them; nothing was calibrated",
}


def model_roofline_chart(explained: Sequence[Explanation]) -> Chart | None:
    """Every kernel with arithmetic by its FLOP per byte and its FLOP/s; None where there is none.

    Filled marks are measured in the running model, hollow ones estimated.
    """
    shown = on_roofline(explained)
    if not shown:
        return None
    roofline = shown[0].roofline
    traces = limits(roofline, [intensity for one in shown if (intensity := one.roofline.intensity)])
    total = sum(one.run_s for one in explained)
    for source in sorted({one.kernel.source for one in shown}):
        for measured in (True, False):
            mine = [
                one
                for one in shown
                if one.kernel.source == source and (one.roofline.measured_s is not None) is measured
            ]
            if mine:
                traces.append(_kernels(mine, source, measured, total))
    chart = make_chart(traces, "FLOP per byte of the arguments", "GFLOP/s", height=460, legend=True)
    chart["layout"]["xaxis"] |= {"type": "log", "rangemode": "normal"}
    chart["layout"]["yaxis"] |= {"type": "log"}
    return chart


def on_roofline(explained: Sequence[Explanation]) -> list[Explanation]:
    """Kernels that do arithmetic and whose time is known."""
    return [one for one in explained if one.roofline.intensity and one.run_s > 0]


def walks(explained: Sequence[Explanation]) -> list[dict[str, Any]]:
    """The kernels whose walks were gone again, with what a page says of each."""
    found = [one for one in explained if one.steps or one.program]
    return [
        {
            "explanation": one,
            "chart": f"walk-{number}",
            "states": len({step.state.key() for step in one.steps}),
            "walks": len({step.walk for step in one.steps if step.walk >= 0}),
        }
        for number, one in enumerate(found, start=1)
    ]


def roofline_charts(explained: Sequence[Explanation]) -> dict[str, Chart | None]:
    """The charts of a model by name."""
    drawn = {one["chart"]: walk_chart(one["explanation"], brief=True) for one in walks(explained)}
    return {"roofline": model_roofline_chart(explained), **drawn}


def source_text(roofline: Roofline) -> str:
    """Where the ceilings come from."""
    return _SOURCES.get(roofline.source, roofline.source)


def _kernels(mine: Sequence[Explanation], source: str, measured: bool, total: float) -> dict[str, Any]:
    rates = [
        one.roofline.flops / ((one.roofline.measured_s or one.roofline.estimate_s or 1.0) * 1e9)
        for one in mine
    ]
    shares = [one.run_s / total for one in mine]
    colour = SOURCE_COLOURS.get(source, "#999999")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": source if measured else f"{source}, estimated",
        "x": [one.roofline.intensity for one in mine],
        "y": rates,
        "text": [
            f"{one.kernel.name}, {share:.1%} of the time" for one, share in zip(mine, shares, strict=True)
        ],
        "marker": {
            "symbol": "circle" if measured else "circle-open",
            "size": [_LEAST_PX + (_MOST_PX - _LEAST_PX) * share**0.5 for share in shares],
            "color": colour,
            "opacity": 0.75,
        },
    }
