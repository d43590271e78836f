"""Kernel and firmware as each kind of machine shows them."""

from __future__ import annotations

import struct
from pathlib import Path

from device_agent.board import firmware
from device_agent.board.machine import Machine


def write(root: Path, **files: bytes) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_each_version_is_found_where_the_kernel_shows_it(tmp_path: Path) -> None:
    assert firmware.versions(str(tmp_path)) == {}
    write(
        tmp_path,
        proc__sys__kernel__osrelease=b"6.12.34+rpt-rpi-2712\n",
        proc__sys__kernel__version=b"#1 SMP PREEMPT\n",
        sys__class__dmi__id__bios_version=b"36.4.3-gcid-38968081\n",
    )
    chosen = tmp_path / "proc" / "device-tree" / "chosen"
    (chosen / "bootloader").mkdir(parents=True)
    (chosen / "u-boot,version").write_bytes(b"2021.10\0")
    (chosen / "bootloader" / "build-timestamp").write_bytes(struct.pack(">I", 1733000000))
    assert firmware.versions(str(tmp_path)) == {
        "kernel": "6.12.34+rpt-rpi-2712",
        "kernel build": "#1 SMP PREEMPT",
        "firmware": "36.4.3-gcid-38968081",
        "u-boot": "2021.10",
        "boot loader": "1733000000",
    }
    assert Machine(str(tmp_path)).describe()["system"] == firmware.versions(str(tmp_path))


def test_what_is_no_version_is_left_out_and_nothing_long_is_read(tmp_path: Path) -> None:
    write(tmp_path, proc__sys__kernel__osrelease=b"6" * 100_000, sys__class__dmi__id__bios_version=b" \n")
    chosen = tmp_path / "proc" / "device-tree" / "chosen" / "bootloader"
    chosen.mkdir(parents=True)
    (chosen / "build-timestamp").write_bytes(b"12345678")
    assert firmware.versions(str(tmp_path)) == {"kernel": "6" * 256}


def test_this_machine_has_a_kernel() -> None:
    assert firmware.versions()["kernel"]
