"""Hosts of a cluster of the tests: one whose raylet ends while it starts is begun again."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from tests import ray_cluster
from tests.ray_cluster import RayCluster

# The first start has a child named as Ray's, which ends, and waits for it for minutes; the second one runs.
_HOST = """
import os, pathlib, sys, time
first = pathlib.Path(sys.argv[1])
if first.exists():
    print("Ray runtime started", flush=True)
else:
    first.touch()
    if not os.fork():
        pathlib.Path("/proc/self/comm").write_text("raylet")
        os._exit(1)
time.sleep(600)
"""


def test_a_host_whose_raylet_ends_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", _HOST, str(tmp_path / "first")]
    monkeypatch.setattr(ray_cluster, "start_command", lambda *_, **__: command)
    monkeypatch.setattr(ray_cluster, "_START_S", 60.0)
    cluster = RayCluster(tmp_path, [("board",)])
    try:
        assert (tmp_path / "host-0.log").read_text() == "Ray runtime started\n"
    finally:
        cluster.close()
    left = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    assert not [one for one in left if str(tmp_path / "first") in one.cmdline()]
