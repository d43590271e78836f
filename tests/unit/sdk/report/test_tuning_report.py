from __future__ import annotations

import functools
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from host.commands.tune import TunedModel
from host.model import Candidate
from host.tuning.learning.trainer import TrainingResult
from host.tuning.result import ProposerFigures, TunedTask, TuneResult
from sdk.cli.printing import print_tuned
from sdk.cli.terminal import ConsoleProgress
from sdk.report.figures import deploy_json, tune_json
from sdk.report.html import render
from sdk.report.tuning import curve_chart, render_tuning, shares_chart
from tests.browser import drawn, page_in_browser
from tests.unit.compare.samples import result


def tuning() -> TuneResult:
    """Two kernels, one won by each proposer; the model's time falls from 5 ms to 3 ms."""
    best = Candidate("hash", "tiled", (("rows", 4),), "tlm", 1e-3, 4)
    return TuneResult(
        tasks=(
            TunedTask("conv <b>", "hash", 2, 4, 1, 2e-3, best, 1e-3, False),
            TunedTask("dense", "hash2", 1, 2, 0, 1e-3, replace(best, proposer="gensor"), 1e-3, True),
        ),
        skipped={"copy": "it has no decisions"},
        proposers=(ProposerFigures("tlm", 1, 2 / 3, 3, 2, 1), ProposerFigures("gensor", 1, 1 / 3, 3, 1, 0)),
        trials=6,
        measured_now=4,
        curve=((0, 5e-3), (1, 5e-3), (6, 3e-3)),
        shares=({"gensor": 2, "tlm": 1}, {"gensor": 1, "tlm": 2}),
        trainings=(TrainingResult(None, "digest", 0.9, 1.0, 3.0),),
        stopped="gain",
    )


def tuned() -> TunedModel:
    machine = result().machine
    return TunedModel(
        "net", "desk", machine, 1, tuning(), "r.sqlite", {"total": 2.0}, {}, "sdk tune net.onnx"
    )


def test_charts_show_the_curve_and_whose_the_programs_were() -> None:
    curve, shares = curve_chart(tuning()), shares_chart(tuning())
    assert curve is not None and shares is not None
    assert (curve["data"][0]["x"], curve["data"][0]["y"]) == ([0, 1, 6], [5.0, 5.0, 3.0])
    assert {trace["name"]: trace["y"] for trace in shares["data"]} == {"gensor": [2, 1], "tlm": [1, 2]}
    nothing = replace(tuning(), curve=((0, 5e-3),), shares=())
    assert curve_chart(nothing) is None
    assert shares_chart(nothing) is None


@pytest.mark.parametrize("page", ["tune", "deploy"])
def test_pages_say_who_won_what(page: str) -> None:
    html = render_tuning(tuned()) if page == "tune" else render(replace(result(), tuning=tuning()))
    assert "6 programs were tried, 4 of them in this run; then little more was to be expected" in html
    assert "conv &lt;b&gt;" in html and "conv <b>" not in html
    assert '<td>tlm</td><td class="number">1</td><td class="number">67%</td>' in html
    assert 'id="chart-curve"' in html and 'id="chart-proposals"' in html
    assert "it has no decisions" in html and "the old one" in html


def test_the_charts_are_drawn_in_a_browser(tmp_path: Path) -> None:
    report = tmp_path / "tuning.html"
    report.write_text(render_tuning(tuned()))
    page = page_in_browser(report, tmp_path / "profile")
    assert drawn(page, "curve", "line") == 1
    assert drawn(page, "proposals", "bar") == 4


def test_a_deployment_without_tuning_says_nothing_of_it() -> None:
    assert "who won what" not in render(result())
    assert deploy_json(result())["tuning"] is None


def test_figures_are_plain_data(tmp_path: Path) -> None:
    figures = json.loads(json.dumps(tune_json(tuned())))
    assert figures["schema"] == "edgetlm.tune/2"
    assert figures["proposers"]["tlm"]["tasks_won"] == 1
    assert figures["model_ms"] == {"first": 5.0, "best": 3.0}
    assert figures["curve"][-1] == {"trials": 6, "model_ms": 3.0}
    assert figures["tasks"][0]["source"] == "tlm"
    assert figures["trainings"][0]["accepted"] is False


def test_the_command_line_ends_with_the_winners(capsys: pytest.CaptureFixture[str]) -> None:
    print_tuned(tuned())
    text = capsys.readouterr().out
    assert "6 trials, 4 of them now; little more was to be expected" in text
    assert "won by    tlm          1 kernels, 67% of the time, 3 tried, 1 failed" in text
    assert "withheld error 0.900 -> 1.000, not used" in text
    assert "not tuned copy: it has no decisions" in text


def test_a_log_has_a_line_of_a_long_stage_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("sdk.cli.terminal.time.perf_counter", lambda: now[0])
    with ConsoleProgress() as progress:
        progress.stage("tune")
        for second in range(100):
            now[0] = float(second)
            progress.status(f"{second} trials")
    lines = [line for line in capsys.readouterr().out.splitlines() if "trials" in line]
    assert lines == ["tune      30 trials", "tune      60 trials", "tune      90 trials"]


def test_latencies_stand_on_the_live_line_and_not_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdk.cli.terminal._LINE_EACH_S", 0.0)
    shown = []
    for terminal in (False, True):
        screen = io.StringIO()
        monkeypatch.setattr(
            "sdk.cli.terminal.Console",
            functools.partial(Console, force_terminal=terminal, width=120),
        )
        with ConsoleProgress(screen) as progress:
            progress.stage("measure")
            progress.latencies({"tvm": 1.23456e-3, "onnx\nruntime": 2e-3})
            progress._bar.refresh()
            progress.stage("install")
            progress._bar.refresh()
        shown.append(screen.getvalue())
    log, live = shown
    assert "ms" not in log and "tvm" not in log
    assert "tvm 1.235, onnx runtime 2.000 ms" in live
    assert "tvm" not in live.rsplit("install", 1)[1], "the next stage begins without them"
