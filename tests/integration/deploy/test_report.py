from __future__ import annotations

from pathlib import Path

import pytest

import sdk
from host.statistics import spread_of
from sdk.report.figures import deploy_json
from tests.browser import LARGEST_PAGE_BYTES, drawn, page_in_browser
from tests.integration import small_models

_SAID_OF = {
    "calibrated": "sdk devices calibrate",
    "detected": "which was detected",
    "declared": "declares them",
}


def test_the_report_of_a_real_deployment_draws_its_charts(tmp_path: Path) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    deployment = sdk.deploy(model, threads=1, backend="tvm", report=tmp_path / "report.html")
    assert deployment.report == tmp_path / "report.html"
    assert deployment.report.stat().st_size < LARGEST_PAGE_BYTES
    page = page_in_browser(deployment.report, tmp_path / "profile")
    result = deployment.result
    assert drawn(page, "latency", "box") == len(result.contenders) == 2
    assert drawn(page, "kernels", "bar") == len(result.tasks)
    assert drawn(page, "stages", "bar") >= 6
    for task in result.tasks:
        # A name may be broken behind each of its words.
        assert f"<code>{task.name}</code>" in page.replace("<wbr>", "")
        assert task.layers and all(layer.name in page for layer in task.layers)
    assert result.parameters == 16 * 3 * 9 + 4 * 16 + 16 * 10 + 10
    assert result.start is not None and result.start.load_s > 0 and result.start.first_run_s > 0
    # The ceilings, and every kernel that does arithmetic.
    levels = len(result.explained[0].roofline.bandwidths)
    assert drawn(page, "roofline", "line") == 1 + levels
    assert drawn(page, "roofline", "point") == sum(task.flops > 0 for task in result.tasks) > 0
    assert [one.kernel.name for one in result.explained] == [
        task.name for task in sorted(result.tasks, key=lambda one: -one.weight * (one.latency_us or 0))
    ]
    walked = [one for one in result.explained if one.path]
    assert walked
    for number, one in enumerate(walked, start=1):
        numbers = {step.walk for step in one.steps if step.walk >= 0}
        assert drawn(page, f"walk-{number}", "line") == len(numbers) + 1, "every walk, and the path"
    under = deploy_json(result)["roofline"]
    assert under["source"] in ("calibrated", "detected", "declared") and under["source"] in _SAID_OF
    assert _SAID_OF[under["source"]] in page
    assert {one["name"]: one["measured_us"] for one in under["kernels"]} == {
        task.name: pytest.approx(task.latency_us) for task in result.tasks
    }
    # The page is passed on: where the bundle lies is said from the working folder.
    assert str(deployment.bundle.relative_to(Path.cwd())) in page
    assert str(tmp_path) not in deployment.report.read_text()
    energy = result.measurement.energy
    assert energy.source in page
    assert drawn(page, "energy", "bar") == 1 if energy.gross_j is not None else "Unavailable:" in page


def test_a_second_deployment_says_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_models.convnet(tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    first, second = (sdk.deploy(model, threads=1, backend="tvm", peers=()) for _ in range(2))
    assert deploy_json(first.result)["since_last"] is None
    found = deploy_json(second.result)["since_last"]
    assert found["reason"] == "" and [one["metric"] for one in found["changes"]][:2] == ["latency", "energy"]
    latency = found["changes"][0]
    rounds = deploy_json(first.result)["samples"]["rounds_ms"]
    assert latency["before"] == pytest.approx(spread_of(rounds).value)
    assert "<h2>Since the last deployment</h2>" in second.report.read_text()
