"""Charts as SVG: where the marks are."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from sdk.report.charts import latency_chart, make_chart
from sdk.report.drawing.axes import Axis, span
from sdk.report.drawing.elements import shortened, width_of
from sdk.report.drawing.figure import NARROW_PX, WIDE_PX, picture
from tests.unit.compare.samples import measurement, result


def _marks(root: Element, kind: str) -> list[Element]:
    return [one for one in root.iter() if one.get("class") == kind]


def _corners(mark: Element) -> list[tuple[float, float]]:
    """The points of an outline of straight lines with absolute ends."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", mark.get("d", ""))]


def _bar(mark: Element) -> tuple[float, float]:
    found = re.match(r"M([\d.]+) [\d.]+H([\d.]+)", mark.get("d", ""))
    assert found is not None
    return float(found[1]), float(found[2])


def _bars(**more: Any) -> dict[str, Any]:
    return {"type": "bar", "orientation": "h", "name": "one", **more}


@pytest.mark.parametrize("width", [WIDE_PX, NARROW_PX])
def test_bars_are_as_long_as_their_values(width: float) -> None:
    chart = make_chart([_bars(y=["a", "b"], x=[10.0, 40.0])], "ms", height=120)
    (first, end), (second, longer) = map(_bar, _marks(picture(chart, width), "bar"))
    assert first == second
    assert (longer - second) / (end - first) == pytest.approx(4, rel=0.01)


def test_stacked_bars_begin_where_others_end_and_grouped_ones_at_zero() -> None:
    traces = [_bars(y=["a"], x=[10.0]), _bars(y=["a"], x=[30.0])]
    chart = make_chart(traces, "ms", height=120)
    (begin, _), (other, _) = map(_bar, _marks(picture(chart, WIDE_PX), "bar"))
    assert begin == other
    chart["layout"]["barmode"] = "stack"
    (_, end), (other, _) = map(_bar, _marks(picture(chart, WIDE_PX), "bar"))
    assert other == end


def test_points_lie_on_logarithmic_axes_by_ratio_and_those_without_a_place_are_left_out() -> None:
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "walk",
        "x": [1.0, 10.0, 100.0, None, 5.0],
        "y": [1.0, 2.0, 3.0, 4.0, math.inf],
    }
    chart = make_chart([trace], "x", "y", height=300)
    chart["layout"]["xaxis"] = {"title": {"text": "x"}, "type": "log"}
    root = picture(chart, WIDE_PX)
    [line] = _marks(root, "line")
    (x1, y1), (x2, y2), (x3, y3) = _corners(line)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2) and y1 > y3, "upwards"
    assert len(_marks(root, "point")) == 3


def test_a_box_shows_quartiles_of_its_samples() -> None:
    chart = make_chart(
        [{"type": "box", "orientation": "h", "name": "tvm", "x": [1.0, 2.0, 3.0, 4.0, 100.0]}],
        "ms",
        height=120,
    )
    root = picture(chart, WIDE_PX)
    [box] = _marks(root, "box")
    [samples] = _marks(root, "samples")
    assert samples.get("d", "").count("h0") == 5
    assert [one.text for one in box] == ["tvm: 2, 3, 4 (quartiles), n 5"]


def test_a_long_line_keeps_its_shape_in_few_points() -> None:
    noise = [math.sin(number * number) for number in range(20_000)]
    noise[12_345] = 9.0
    trace = {"type": "scatter", "mode": "lines", "name": "tvm", "x": list(range(20_000)), "y": noise}
    root = picture(make_chart([trace], "sample", "ms", height=300), WIDE_PX)
    [line] = _marks(root, "line")
    found = _corners(line)
    assert 700 < len(found) <= 4 * WIDE_PX
    alone = [y for _, y in sorted(found, key=lambda point: point[1])[:2]]
    assert alone[1] - alone[0] > 100, "the one that is far above the others is there"


def test_columns_stand_beside_each_other_and_what_is_unknown_is_refused() -> None:
    traces = [{"type": "bar", "name": name, "x": [1, 2], "y": [3, 4]} for name in ("tlm", "gensor")]
    assert len(_marks(picture(make_chart(traces, "batch", height=200), WIDE_PX), "bar")) == 4
    with pytest.raises(KeyError):
        picture(make_chart([{"type": "pie", "name": "x", "x": [1], "y": [1]}], "x", height=99), WIDE_PX)


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0.0, 10.0, False, [0, 2, 4, 6, 8, 10]),
        (0.05, 0.45, False, [0.2, 0.4]),
        (1.0, 1e6, True, [1, 100, 1e4, 1e6]),
        (0.9, 11.0, True, [1, 2, 5, 10]),
    ],
)
def test_ticks_are_round(low: float, high: float, log: bool, ticks: list[float]) -> None:
    most = 5 if high in (10.0, 1e6) else 1 if not log else 6
    assert Axis(low, high, 0, 100, log).ticks(most) == pytest.approx(ticks)


def test_an_axis_of_one_value_has_a_length() -> None:
    for values in ([], [0.0], [3.0], [-2.0, -2.0]):
        for log in (False, True):
            known = [value for value in values if value > 0 or not log]
            for zero in (False, True):
                low, high = span(known, log=log, zero=zero)
                assert low < high


def test_long_names_lose_their_middle() -> None:
    name = "fused_conv2d_add_clip_depthwise_17"
    short = shortened(name, 100)
    assert len(short) < len(name) and width_of(short) <= 100
    assert short.startswith("fuse") and short.endswith("17") and "…" in short
    assert shortened(name, width_of(name)) == name


def test_a_few_long_runs_stand_at_the_edge_and_are_counted() -> None:
    whole = result()
    slow = replace(measurement(2.0), times_s=(*(0.002,) * 95, *(0.09,) * 5))
    contenders = {**whole.contenders, "tvm": replace(whole.contenders["tvm"], measurement=slow)}
    chart = latency_chart(replace(whole, contenders=contenders))
    assert chart is not None
    assert max(chart["data"][0]["x"]) < 4.5 and min(chart["data"][0]["x"]) == 2.0
    title = chart["layout"]["xaxis"]["title"]["text"]
    assert title == "milliseconds a run; 5 of 120 took longer, up to 90, and stand at the edge"
    usual = latency_chart(whole)
    assert usual is not None and usual["layout"]["xaxis"]["title"]["text"] == "milliseconds a run"
