"""A project file on this machine: `sdk deploy` alone deploys, and a gate keeps a model from the device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sdk
from host import bundle
from sdk.cli.main import main
from tests.integration import small_models

_PROJECT = """
model = "net.onnx"
threads = 1
backend = "tvm"

[gates]
max-error = 1e-3
max-bundle = "{most}"
"""


def active_versions() -> list[str]:
    with sdk.connect("local") as device:
        return [str(one["version"]) for one in device.bundles() if one["active"]]


def test_a_project_is_deployed_and_a_gate_keeps_the_next_one_from_the_device(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small_models.convnet(Path("net.onnx"))
    project = Path("edgetlm.toml")
    project.write_text(_PROJECT.format(most="10M"))
    assert main(["deploy", "--json", "first.json"]) == 0
    printed = capsys.readouterr()
    assert "gate      max-bundle 10485760: the device runs " in printed.out
    assert printed.err == ""
    first = json.loads(Path("first.json").read_text())
    assert (first["installed"], [gate["passed"] for gate in first["gates"]]) == (True, [True, True])
    [active] = active_versions()
    report = Path("edgetlm-out/net/report.html")
    report.unlink()
    small_models.convnet(Path("net.onnx"), seed=1)
    project.write_text(_PROJECT.format(most="1K"))
    assert main(["deploy", "--json", "second.json"]) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: net on local: the gate max-bundle 1024: the device runs ")
    assert "1 of 2 not met: nothing was installed" in report.read_text()
    second = json.loads(Path("second.json").read_text())
    assert (second["installed"], [gate["passed"] for gate in second["gates"]]) == (False, [True, False])
    assert active_versions() == [active], "the device runs what it ran"
    kept = bundle.load(Path("edgetlm-out/net/bundle"))
    assert kept.measured["contenders"]["tvm"]["latency_ms"]["n"] > 0
