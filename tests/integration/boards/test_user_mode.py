"""Devices of qemu's user mode: the agent and its executors are programs of the other architecture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from host import bundle
from host.devices import Registry
from host.model import EMULATOR
from host.transport import connect
from tests.integration.boards.cli import deployed, sdk
from tests.integration.small_models import convnet
from tests.shared_cache import zoo_model

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.long
def test_mobilenetv2_on_riscv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The agent's Python is emulated, the executor is the native one: there are no wheels."""
    said = sdk(capsys, "devices emulate riscv64 --name board --vector-bits 256 --tag desk")
    assert "board is a rv64gcv" in said
    result = deployed(capsys, zoo_model("mobilenetv2", "onnx"), "board", tmp_path)
    assert result["emulated"] is True and result["backend"] == "tvm"
    assert "cannot be known" in (tmp_path / "report.html").read_text()
    with connect("board") as device:
        assert device.describe().machine == "riscv64"
        [installed] = device.bundles()
    assert installed["active"]
    serves = json.loads((_folder("board") / "home" / "payloads.json").read_text())
    assert serves["tvm"]["kind"] == "native"
    assert str(_folder("board")) in sdk(capsys, "devices remove board")
    assert "board" not in Registry().entries()


@pytest.mark.parametrize(
    ("architecture", "options", "board"),
    [
        ("aarch64", "--board raspberry_pi_5", "raspberry_pi_5"),
        ("riscv64", "--board rv64gc", "rv64gc"),
    ],
)
def test_every_kind_of_processor_gives_the_same_numbers(
    architecture: str, options: str, board: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sdk(capsys, f"devices emulate {architecture} --name board {options}")
    result = deployed(capsys, convnet(tmp_path / "net.onnx"), "board", tmp_path)
    assert result["backend"] == "tvm" and result["verify"]["passed"]
    directory = tmp_path / "net"
    manifest = bundle.load(directory)
    with connect("board") as device:
        assert device.timing == EMULATOR
        assert Registry().get("board").board == board
        with device.open_session("tvm") as session:
            session.load(directory)
            for case in bundle.golden_cases(directory, manifest):
                [made] = session.run(case.inputs)
                np.testing.assert_allclose(made, case.outputs[0], rtol=1e-3, atol=1e-5)


def _folder(name: str) -> Path:
    return Path(Registry().get(name).options["folder"])
