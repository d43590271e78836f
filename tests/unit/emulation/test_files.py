"""What emulated devices are made of, as far as nothing has to be emulated for it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from host.devices import DeviceEntry, Registry
from host.emulation import image, user
from host.emulation.cpio import CpioWriter
from host.emulation.processors import emulated_board, processor
from host.emulation.tools import tool
from host.errors import DeviceError, UserError
from host.transport import connect_entry
from sdk.management import administration


def test_the_kernels_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with CpioWriter(stream) as archive:
        archive.folder("etc")
        archive.file("etc/name", b"edgetlm\n", 0o600)
        archive.link("etc/other", "name")
    if (found := shutil.which("cpio")) is None:
        pytest.fail("cpio is not installed: run scripts/system-packages")
    subprocess.run(
        [found, "-id", "--quiet"], input=stream.getvalue(), cwd=tmp_path, check=True, capture_output=True
    )
    assert (tmp_path / "etc" / "other").read_text() == "edgetlm\n"
    assert (tmp_path / "etc" / "name").stat().st_mode & 0o777 == 0o600


def _machine_files(folder: Path, python: tuple[int, int]) -> Path:
    """What an image with one file of Python's library unpacks to."""
    packed = io.BytesIO()
    files = {
        "usr/lib/python3.x/os.py": b"name = 1\n",
        "lib/modules/modules.builtin": b"",
        "boot/vmlinuz": b"k",
    }
    for module in image._MODULES:
        files["lib/modules/modules.builtin"] += f"kernel/{module}.ko\n".encode()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    (folder / "made").mkdir()
    recipe = image._CONTENTS["riscv64"].recipe
    with tarfile.open(fileobj=packed) as archive:
        image._make(image._Contents(recipe, python), archive, folder / "made")
    made = (folder / "made" / "initrd").read_bytes()
    (folder / "root").mkdir()
    # The device of the console needs a privilege that a test may lack.
    subprocess.run(["cpio", "-id", "--quiet", "etc/*", "usr/*"], input=made, cwd=folder / "root", check=True)
    return folder / "root"


@pytest.mark.parametrize("same", [True, False])
def test_a_machines_library_is_compiled_once(same: bool, tmp_path: Path) -> None:
    """By this host where the version is its own, else by the first program of the machine."""
    major, minor = sys.version_info[:2]
    root = _machine_files(tmp_path, (major, minor if same else minor + 1))
    compiled = list(root.rglob("*.pyc"))
    kept = "SetEnv PYTHONPYCACHEPREFIX=/home/edge/" in (root / "etc/ssh/sshd_config").read_text()
    assert (len(compiled), kept) == ((1, False) if same else (0, True))


def test_an_emulated_interpreter_keeps_what_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment of this host forbids it, as that of many containers does."""
    root, emulator = tmp_path / "root", tmp_path / "emulator"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "python3.11").touch()
    # As qemu does it with its options: what is unset, and what is set.
    emulator.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in -U) unset $2; shift 2;; -E) export "$2"; shift 2;;'
        " *) shift;; esac; done\nenv\n"
    )
    emulator.chmod(0o700)
    monkeypatch.setattr(user, "root", lambda architecture: root)
    monkeypatch.setattr(user, "tool", lambda name: emulator)
    device = user.create(tmp_path / "device", emulated_board("aarch64"), 128)
    said = subprocess.run(
        [device.python],
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split("=", 1) for line in said.stdout.splitlines())
    assert found["PYTHONPYCACHEPREFIX"] == str(tmp_path / "compiled-root")
    assert "PYTHONDONTWRITEBYTECODE" not in found


def test_boards_have_processors_that_the_emulator_knows() -> None:
    assert processor(emulated_board("aarch64").name) == "cortex-a72"
    assert "vlen=128" in processor(emulated_board("riscv64").name, 128)
    assert processor(emulated_board("riscv64", "visionfive2").name) == "rv64,v=false"


@pytest.mark.parametrize(
    ("architecture", "board", "said"),
    [
        ("mips", "", "aarch64, riscv64"),
        ("aarch64", "rv64gcv", "raspberry_pi_5"),
        ("riscv64", "spacemit_k1", "rv64gcv"),
        ("aarch64", "none", "raspberry_pi_3"),
    ],
)
def test_what_cannot_be_emulated_is_refused(architecture: str, board: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        emulated_board(architecture, board)


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(UserError, match="apt-get install qemu-system-arm"):
        tool("qemu-system-aarch64")


def test_a_machine_that_is_off_is_said_to_be_and_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "machine"
    folder.mkdir()
    (folder / "port").write_text("1")
    # A process that has this number now is another one.
    (folder / "pid").write_text("1")
    (folder / "architecture").write_text("riscv64")
    entry = DeviceEntry("vm", "ssh", "127.0.0.1", port=1, options={"machine": str(folder)})
    Registry().add(entry)
    with pytest.raises(DeviceError, match="sdk devices emulate riscv64 --vm --name vm"):
        connect_entry(entry)
    assert administration.remove("vm") == [str(folder)]
    assert not folder.exists() and "vm" not in Registry().entries()
