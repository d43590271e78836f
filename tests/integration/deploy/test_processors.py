"""Bundles that are measured beside the CPU's usual one: the GPU's, for which one of the CPU stands here, and
that of programs of one thread.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from host.compile.static_model import Compiled
from host.compile.variants import ALONE, GPU, Variant
from sdk.cli.main import main
from tests.integration.deploy.test_deploy import deployed, with_a_wrong_kernel
from tests.integration.small_models import convnet
from tests.signing import entry, reseal


@pytest.mark.parametrize("broken", [False, True])
def test_the_gpu_goes_to_the_finals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: bool
) -> None:
    def compiled(builder: Any, model: object, timed: bool) -> Variant:
        folder = shutil.copytree(builder.directory("tvm"), builder.directory(GPU))
        if broken:
            (folder / "lib.so").write_bytes(b"not a library")
            files = json.loads((folder / "manifest.json").read_text())["files"]
            reseal(Path(folder), files={**files, "lib.so": entry(b"not a library")})
        return Variant(GPU, "tvm", folder, 1)

    monkeypatch.setattr("host.deploy.processors.compiled_for_gpu", compiled)
    model, figures = convnet(tmp_path / "net.onnx"), tmp_path / "figures.json"
    command = ["deploy", str(model), "--backend", "tvm", "--threads", "1", "--json", str(figures)]
    assert main([*command, "--bundle", str(tmp_path / "bundle")]) == 0
    shown = capsys.readouterr()
    power = json.loads(figures.read_text())["power"]
    points = {point["variant"]: point for point in power["points"]}
    assert set(points) == {"fastest programs", GPU}
    assert points["fastest programs"]["latency_ms"]["value"] > 0
    if broken:
        assert points[GPU]["reason"]
        assert "variant gpu on 1 threads is excluded" in shown.out + shown.err
        assert power["taken"] == points["fastest programs"]["name"]
    else:
        assert points[GPU]["latency_ms"]["value"] > 0


def test_wrong_programs_of_one_thread_end_no_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubtful(made: Compiled, *_: object) -> object:
        return made.plan

    monkeypatch.setattr("host.compile.variants.plan_of_one_thread", doubtful)
    right = deployed(convnet(tmp_path / "net.onnx"), tmp_path / "bundle")
    assert right.power is not None and ALONE in {one.name for one in right.power.points}
    broken = with_a_wrong_kernel(monkeypatch)
    wrong = deployed(convnet(tmp_path / "net.onnx"), tmp_path / "bundle")
    assert (wrong.choice.backend, wrong.power) == ("onnxruntime", None)
    assert "tvm gives wrong outputs" in wrong.choice.why and len(broken) >= 2
