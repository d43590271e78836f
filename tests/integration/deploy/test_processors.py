"""`--processor auto`: the GPU's bundle is one of the finalists; here one of the CPU takes its place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from host.compile.variants import GPU, Variant
from sdk.cli.main import main
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
