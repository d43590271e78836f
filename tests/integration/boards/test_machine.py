"""Whole emulated machines, from bare to a verified model, over SSH."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from host.devices import Registry
from host.emulation import machine
from host.transport import connect
from host.transport.ssh import ssh_connection_to
from sdk.management.administration import devices_folder
from tests.integration.boards.cli import deployed, sdk
from tests.integration.small_models import convnet
from tests.shared_cache import zoo_model

# It boots and emulates, beside other tests, on a small machine.
pytestmark = pytest.mark.timeout(1200)


def _mobilenetv2(_folder: Path) -> Path:
    return zoo_model("mobilenetv2", "onnx")


def _small(folder: Path) -> Path:
    return convnet(folder / "small.onnx")


# A larger network takes minutes on an emulated machine, and the machine of riscv64 is the slower to emulate:
# test_user_mode deploys to its processors.
@pytest.mark.parametrize(
    ("architecture", "options", "board", "model"),
    [
        pytest.param("aarch64", "", "aarch64", _small, id="aarch64"),
        pytest.param("riscv64", "--vector-bits 128", "rv64gcv", _small, id="riscv64", marks=pytest.mark.long),
        pytest.param(
            "aarch64", "", "aarch64", _mobilenetv2, id="aarch64-mobilenetv2", marks=pytest.mark.long
        ),
    ],
)
def test_from_a_bare_machine_to_a_verified_model(
    architecture: str,
    options: str,
    board: str,
    model: Callable[[Path], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = devices_folder() / "vm"
    try:
        said = sdk(capsys, f"devices emulate {architecture} --vm --bare --name vm {options}")
        typed = next(line for line in said.splitlines() if line.startswith("sdk devices add"))
        assert f"board     {board}:" in sdk(capsys, " ".join(shlex.split(typed)[1:]))
        _only_ssh_is_open()
        path = model(tmp_path)
        result = deployed(capsys, path, "vm", tmp_path)
        assert result["emulated"] is True
        assert result["backend"] == "tvm"
        page = (tmp_path / "report.html").read_text()
        assert "cannot be known" in page
        _roll_back(path.stem, tmp_path, capsys)
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


def _roll_back(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After another version of that name was deployed, the first one serves again."""
    first = _active(name)
    own = folder / "next"
    own.mkdir()
    deployed(capsys, convnet(own / f"{name}.onnx", seed=1), "vm", own)
    assert _active(name) != first
    sdk(capsys, f"rollback {name} --device vm")
    assert _active(name) == first


def _active(name: str) -> str:
    with connect("vm") as device:
        [found] = [one["version"] for one in device.bundles() if one["name"] == name and one["active"]]
    return str(found)
