from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from host.compare.selection import VariantSelection
from host.model import EMULATOR
from sdk.cli.printing import print_deployment, print_profile
from sdk.model import Deployment
from sdk.report.figures import deploy_json
from sdk.report.html import render, write_report
from sdk.report.page import figures_in
from sdk.report.power_charts import front_chart, temperature_chart, thinned, trace_chart
from tests.browser import drawn, page_in_browser
from tests.unit.compare.samples import result
from tests.unit.sdk.report.power_result import deployment, sweep


def test_the_charts_are_drawn_in_a_browser(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    write_report(deployment(sweep(cap_w=7.0)), report)
    page = page_in_browser(report, tmp_path / "profile")
    # Seven points and a peer; the lines are the front and the cap.
    assert drawn(page, "front", "point") == 8
    assert drawn(page, "front", "line") == 2
    assert drawn(page, "joules", "bar") == 8
    # A line each, and the power without work.
    assert drawn(page, "power", "line") == 9
    assert drawn(page, "temperature", "line") == 1
    assert drawn(page, "temperature", "point") == 2 * 3 * 8 + 3


def test_the_page_says_what_was_taken_and_why() -> None:
    html = render(deployment(sweep(cap_w=7.0)))
    for text in (
        "Least traffic, 2 threads, 15W needs less energy than the fastest variant: 0.833 times",
        "Power cap: 7 W mean gross power at the boundary board",
        "the untuned model takes 1.22 times as long",
        "needs 1.75 times the energy",
        "Power mode 7W would save 10% of the energy",
        "dominated by fastest, 2 threads, 15W",
        "not set: it needs a reboot",
        "the device was in it, and is again",
        "The board throttled while this was measured: soft temperature limit",
        "above 7 W",
    ):
        assert text in html, text
    assert "unavailable: does not read onnx files" in html


def test_a_cap_is_the_line_of_its_watts() -> None:
    chart = front_chart(sweep(cap_w=5.0))
    assert chart is not None
    [cap] = [trace for trace in chart["data"] if trace["name"] == "cap of 5 W"]
    assert cap["y"][1] / cap["x"][1] == pytest.approx(5.0)
    symbols = {
        text: symbol
        for trace in chart["data"]
        for text, symbol in zip(
            trace.get("text", ()), trace.get("marker", {}).get("symbol", ()), strict=False
        )
    }
    assert "fastest, 2 threads, 15W (above the cap)" in symbols
    assert "least traffic, 2 threads, 15W (deployed)" in symbols
    assert "fastest, 2 threads, MAXN (throttled, above the cap)" in symbols
    assert symbols["fastest, 1 thread, 7W (dominated)"] == "square-open"
    assert symbols["fastest, 2 threads, 7W"] == "circle"


def test_bars_span_the_bounds() -> None:
    chart = front_chart(sweep())
    assert chart is not None
    mode = next(trace for trace in chart["data"] if trace["name"] == "15W")
    source = sweep().points[0].gross_j
    assert source is not None and source.low is not None and source.high is not None
    assert mode["error_y"]["array"][0] == pytest.approx((source.high - source.value) * 1e3)
    assert mode["error_y"]["arrayminus"][0] == pytest.approx((source.value - source.low) * 1e3)


def test_without_energy_there_is_no_front_and_the_reason_is_given() -> None:
    blind = replace(sweep("latency"), points=tuple(_blind(sweep())))
    assert front_chart(blind) is None
    html = render(replace(deployment(), power=blind))
    assert "No front of latency and energy: no sensor" in html
    assert 'id="chart-front"' not in html
    assert trace_chart([]) is None
    assert temperature_chart([]) is None


def _blind(power: VariantSelection) -> list[object]:
    from tests.unit.compare.power_samples import point

    return [point(8.0, None, one.name, one.threads, one.mode) for one in power.points]


def test_a_long_trace_is_thinned_and_keeps_its_ends() -> None:
    trace = tuple((float(step), 1.0, None) for step in range(10_001))
    short = thinned(trace)
    assert len(short) <= 402
    assert (short[0], short[-1]) == (trace[0], trace[-1])
    assert thinned(trace[:3]) == list(trace[:3])


def test_figures_hold_the_front_and_the_samples() -> None:
    figures = json.loads(json.dumps(deploy_json(deployment(sweep(cap_w=7.0)))))
    power = figures["power"]
    assert power["taken"] == "least traffic, 2 threads, 15W"
    assert power["front"] == [
        "fastest, 2 threads, 15W",
        "least traffic, 2 threads, 15W",
        "fastest, 2 threads, 7W",
    ]
    points = {point["name"]: point for point in power["points"]}
    assert points["fastest, 2 threads, MAXN"]["throttled"] is True
    assert points["fastest, 1 thread, 7W"]["dominated_by"] == "fastest, 2 threads, 15W"
    assert len(points["fastest, 1 thread, 7W"]["samples"]["windows_mj"]) == 3
    assert [mode["reason"] for mode in power["modes"]] == ["", "", "", "it needs a reboot"]
    assert len(figures["peers"]["onnxruntime"]["samples"]["rounds_ms"]) == 6
    assert deploy_json(result())["power"] is None


def test_a_page_carries_its_figures() -> None:
    whole = deployment()
    assert figures_in(render(whole)) == json.loads(json.dumps(deploy_json(whole)))
    assert figures_in("<html></html>") is None


def test_an_emulated_device_shows_instructions_and_no_latency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = result()
    ours = whole.contenders["tvm"]
    assert ours.measurement is not None
    counted = replace(ours, measurement=replace(ours.measurement, instructions=12_345_678.0))
    emulated = replace(whole, timing=EMULATOR, contenders={**whole.contenders, "tvm": counted})
    report = tmp_path / "report.html"
    write_report(emulated, report)
    page = page_in_browser(report, tmp_path / "profile")
    assert drawn(page, "instructions", "bar") == 1
    assert "<b>cannot be known</b>" in page and "12,345,678" in page
    assert "latency cannot be known. Instructions are exact" in page
    assert "(onnxruntime not counted)" in page
    print_deployment(Deployment(emulated, report))
    printed = capsys.readouterr().out
    assert "latency   cannot be known: local is emulated" in printed
    assert (
        "note: Simulated board: " in printed and "Compared  with nothing: the board is simulated" in printed
    )
    assert 'class="banner" role="note">Simulated board: ' in page
    assert "executed  tvm          12.346 million instructions a run" in printed
    assert "ms (10%" not in printed
    print_profile(emulated)
    profiled = capsys.readouterr().out
    assert "latency   cannot be known: local is emulated" in profiled and "ms (10%" not in profiled
    assert "executed  tvm          12.346 million instructions a run" in profiled
    figures = deploy_json(emulated)
    assert (figures["emulated"], figures["instructions"]) == (True, 12_345_678.0)
