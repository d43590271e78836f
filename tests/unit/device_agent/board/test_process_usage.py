"""What a process uses, asked of psutil and of /proc."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from device_agent.board import process_usage

# A name that would mislead whoever counts words of /proc/PID/stat.
BUSY = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, b"a) R 1 2 (b", 0, 0, 0)
memory = bytearray(64 << 20)
memory[::4096] = b"x" * len(memory[::4096])
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def busy():
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        # Then it waits for its input, and nothing of it changes any more.
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.01)
        yield process


def test_psutil_and_the_kernels_files_say_the_same(busy):
    from_files, from_psutil = process_usage.from_proc(busy.pid), process_usage.from_psutil(psutil, busy.pid)
    assert from_files == from_psutil
    assert from_files.resident_bytes > 64 << 20 and from_files.cpu_s >= 0.28


def test_psutil_is_used_where_it_is_and_not_needed(busy, monkeypatch):
    asked = []
    monkeypatch.setattr(
        process_usage, "from_psutil", lambda module, pid: asked.append(module) or process_usage.Usage(1, 2.0)
    )
    assert process_usage.usage(busy.pid) == process_usage.Usage(1, 2.0) and asked == [psutil]
    monkeypatch.setitem(sys.modules, "psutil", None)
    process_usage._psutil.cache_clear()
    try:
        assert process_usage.usage(busy.pid).resident_bytes > 64 << 20
    finally:
        process_usage._psutil.cache_clear()


def test_a_process_that_is_gone_uses_nothing():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert (
        process_usage.from_proc(process.pid)
        == process_usage.from_psutil(psutil, process.pid)
        == process_usage.Usage(0, 0.0)
    )
