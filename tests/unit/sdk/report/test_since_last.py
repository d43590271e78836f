"""What changed since the deployment before: in the figures and on the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from host.compare.entrants import EntrantResult
from host.deploy import DeployResult, figures
from host.deploy.staging import ReplacedBundle, Staging
from host.manifest import Manifest, Origin, SignaturePart
from sdk.report.figures import deploy_json
from sdk.report.html import render
from tests.unit.compare.samples import measurement, result


def timed(one: EntrantResult, milliseconds: float) -> EntrantResult:
    """An engine with rounds around a median."""
    rounds = tuple(milliseconds * 1e-3 * (0.99 + 0.002 * (index * 7 % 11)) for index in range(12))
    return replace(one, measurement=measurement(milliseconds), rounds_s=rounds)


def deployed(milliseconds: float) -> DeployResult:
    """A deployment that takes so long, beside a peer that takes 3 ms."""
    whole = result()
    contenders = dict(whole.contenders)
    contenders["tvm"] = timed(contenders["tvm"], milliseconds)
    contenders["onnxruntime"] = timed(contenders["onnxruntime"], 3.0)
    return replace(whole, contenders=contenders, bundle_bytes=1_000_000)


def bundle_of(one: DeployResult) -> ReplacedBundle:
    """What such a deployment leaves."""
    manifest = Manifest(
        name=one.name,
        backend="tvm",
        files={},
        signature=SignaturePart(inputs=(), outputs=()),
        origin=Origin(name="net.onnx", format="onnx", content_hash="0"),
        model="lib.so",
        measured={
            "device": one.device,
            "cpu": one.machine.cpu_name,
            "threads": one.threads,
            "contenders": {name: figures.contender(each) for name, each in one.contenders.items()},
        },
        versions=dict(one.versions),
    )
    return ReplacedBundle(manifest, 2_000_000)


@pytest.mark.parametrize(("before", "verdict"), [(4.0, "better"), (1.0, "worse"), (2.0, "same")])
def test_a_change_is_judged_as_by_compare(before: float, verdict: str) -> None:
    one = replace(deployed(2.0), replaced=bundle_of(deployed(before)))
    found = json.loads(json.dumps(deploy_json(one), allow_nan=False))["since_last"]
    changes = {change["metric"]: change for change in found["changes"]}
    assert found["reason"] == "" and found["schema"] == "edgetlm.compare/1"
    assert changes["latency"]["verdict"] == verdict
    assert changes["latency"]["before"] == pytest.approx(before, rel=0.01)
    assert changes["latency"]["ratio"]["value"] == pytest.approx(2.0 / before, rel=0.01)
    assert changes["memory"]["before"] == 2.0 and changes["memory"]["verdict"] == "better"
    page = render(one)
    assert "<h2>Since the last deployment</h2>" in page
    assert f">{verdict}</td>" in page


def test_a_first_deployment_says_nothing() -> None:
    assert deploy_json(deployed(2.0))["since_last"] is None
    assert "Since the last deployment" not in render(deployed(2.0))


def test_what_cannot_be_compared_has_its_reason() -> None:
    other = bundle_of(replace(deployed(2.0), device="pi5"))
    empty = replace(bundle_of(deployed(2.0)))
    assert empty.manifest is not None
    empty = replace(empty, manifest=empty.manifest.model_copy(update={"measured": {}}))
    broken = ReplacedBundle(None, reason="the manifest <b> was changed")
    for replaced, reason in (
        (other, "the deployment before was net on pi5"),
        (empty, "the deployment before holds no measured figures: only a deployed bundle has them"),
        (broken, "the manifest <b> was changed"),
    ):
        one = replace(deployed(2.0), replaced=replaced)
        assert deploy_json(one)["since_last"] == {"reason": reason, "changes": []}
        assert f"Not compared: {reason.replace('<b>', '&lt;b&gt;')}." in render(one)


def test_a_bundle_that_is_replaced_is_read_or_the_reason_is_given(tmp_path: Path) -> None:
    with Staging(tmp_path / "bundle") as staging:
        assert staging.replaced() is None
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_text("{}")
    with Staging(tmp_path / "bundle") as staging:
        found = staging.replaced()
    assert found is not None and found.manifest is None and "bundle" in found.reason
