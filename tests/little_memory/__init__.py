"""A machine that has little memory free."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from device_agent.execute import virtual_machine
from device_agent.execute.memory.free_memory import require_free
from host.build.linker import zig_executable


def with_free_memory(folder: Path, kib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have native executors that start from now on, and the runtime in this process, find this memory free.

    Args:
        folder: for the file in the place of /proc/meminfo, and the library that native executors load first.
        kib: KiB that are free.
        monkeypatch: undoes it.
    """
    meminfo, library = folder / "meminfo", folder / "meminfo.so"
    meminfo.write_text(f"MemTotal: {kib} kB\nMemAvailable: {kib} kB\n")
    command = [str(zig_executable()), "cc", "-shared", "-fPIC", "-O2", "-target", "x86_64-linux-gnu.2.31"]
    command += ["-o", str(library), str(Path(__file__).with_name("meminfo.c"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("TEST_MEMINFO", str(meminfo))
    here = functools.partial(require_free, meminfo=str(meminfo))
    monkeypatch.setattr(virtual_machine, "require_free", here)
