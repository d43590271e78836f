"""Whole emulated machines, from bare to a verified MobileNetV2, over SSH."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from host.devices import Registry
from host.emulation import machine
from host.transport import connect
from host.transport.ssh import ssh_connection_to
from sdk.management.administration import devices_folder
from tests.integration.boards.cli import deployed, sdk
from tests.integration.small_models import convnet

# It boots and emulates, beside other tests, on a small machine.
pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize(
    ("architecture", "options", "board"),
    [("aarch64", "", "aarch64"), ("riscv64", "--vector-bits 128", "rv64gcv")],
)
def test_from_a_bare_machine_to_a_verified_model(
    architecture: str,
    options: str,
    board: str,
    mobilenetv2: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = devices_folder() / "vm"
    try:
        said = sdk(capsys, f"devices emulate {architecture} --vm --bare --name vm {options}")
        typed = next(line for line in said.splitlines() if line.startswith("sdk devices add"))
        assert f"board     {board}:" in sdk(capsys, " ".join(shlex.split(typed)[1:]))
        _only_ssh_is_open()
        result = deployed(capsys, mobilenetv2, "vm", tmp_path)
        assert result["emulated"] is True
        assert result["backend"] == "tvm"
        page = (tmp_path / "report.html").read_text()
        assert "cannot be known" in page
        _roll_back(tmp_path, capsys)
        assert "vm is no longer registered" in sdk(capsys, "devices remove vm")
        assert machine.running(folder) is None and not folder.exists()
    finally:
        machine.stop(folder)


def _only_ssh_is_open() -> None:
    """Nothing but SSH listens on an address that another machine could reach."""
    with ssh_connection_to(Registry().get("vm")) as link:
        listening = link.run("ss -Hltn", timeout_s=60.0).stdout.decode()
    addresses = [line.split()[3] for line in listening.splitlines()]
    assert any(address.startswith("127.0.0.1:") for address in addresses)
    outside = [address for address in addresses if not address.startswith("127.")]
    assert outside and all(address.rpartition(":")[2] == "22" for address in outside)


def _roll_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After another version of that name was deployed, the first one serves again."""
    first = _active()
    own = folder / "next"
    own.mkdir()
    deployed(capsys, convnet(own / "mobilenetv2.onnx"), "vm", own)
    assert _active() != first
    sdk(capsys, "rollback mobilenetv2 --device vm")
    assert _active() == first


def _active() -> str:
    with connect("vm") as device:
        [found] = [
            one["version"] for one in device.bundles() if one["name"] == "mobilenetv2" and one["active"]
        ]
    return str(found)
