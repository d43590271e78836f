"""`sdk cluster`: hosts that are processes of this machine are started, shown, used and ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from sdk.cli.main import main
from tests.ray_cluster import ADDRESS, ROOT

_USE = """
import os, sys
from host.execution import JobCrashed, open_engine
engine = open_engine(sys.argv[1])
print(engine.boards(), engine.submit(os.getpid).result() != os.getpid())
try:
    engine.submit(os.abort).result(100)
except JobCrashed as error:
    print("crashed", "4 times" in str(error))
print("switched", sys.getswitchinterval() < 0.001)
engine.close()
print("RAY_AUTH_MODE" in os.environ, sys.getswitchinterval())
"""


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with socket.create_server((ADDRESS, 0)) as free:
        port = free.getsockname()[1]
    path = tmp_path / "edgetlm.toml"
    hosts = "".join(
        f'[cluster.hosts.{name}]\naddress = "{ADDRESS}"\nboards = ["{board}"]\ncores = 1\n'
        for name, board in (("build", "pi5"), ("rack", "pi6"))
    )
    path.write_text(f"[cluster]\nport = {port}\n{hosts}")
    yield path
    main(["cluster", "down", "--file", str(path)])


def states(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {one["host"]: one["state"] for one in json.loads(capsys.readouterr().out)}


def processes(folder: Path) -> list[psutil.Process]:
    """The hosts, with all that they have started."""
    numbers = [int(path.read_text()) for path in folder.rglob("*.pid") if path.read_text().strip()]
    hosts = [psutil.Process(number) for number in numbers if psutil.pid_exists(number)]
    return [*hosts, *(one for host in hosts for one in host.children(recursive=True))]


def kill_a_raylet(folder: Path, ended: threading.Event, killed: list[int]) -> None:
    """Kill the first raylet that a host starts, as one that gives up on a busy machine ends."""
    while not killed and not ended.wait(0.02):
        for one in processes(folder):
            with suppress(psutil.NoSuchProcess):
                if one.name() == "raylet":
                    one.kill()
                    killed.append(one.pid)
                    return


@contextmanager
def a_raylet_dies(folder: Path) -> Iterator[list[int]]:
    """While this is open, the first raylet that is seen is killed."""
    killed: list[int] = []
    ended = threading.Event()
    watching = threading.Thread(target=kill_a_raylet, args=(folder, ended, killed))
    watching.start()
    try:
        yield killed
    finally:
        ended.set()
        watching.join()


def test_hosts_are_started_used_and_ended(
    tmp_path: Path, described: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def cluster(word: str) -> dict[str, str]:
        assert main(["cluster", word, "--file", str(described), "-o", "json"]) == 0
        return states(capsys)

    assert cluster("status") == {"build": "down", "rack": "down"}
    # A host whose raylet ends while it starts is started anew.
    with a_raylet_dies(tmp_path) as killed:
        assert cluster("up") == {"build": "started", "rack": "started"}
    assert killed
    assert cluster("up") == {"build": "runs", "rack": "runs"}
    assert cluster("status") == {"build": "up", "rack": "up"}
    token = (tmp_path / "config" / "edgetlm" / "cluster-token").read_text().strip()
    running = processes(tmp_path)
    assert len(running) > 4
    assert not [one for one in running if token in " ".join(one.cmdline())]

    assert main(["cluster", "status", "--file", str(described)]) == 0
    port = described.read_text().split("port = ")[1].split()[0]
    capsys.readouterr()
    command = [sys.executable, "-c", _USE, f"ray://{ADDRESS}:{port}"]
    known = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=False, timeout=120)
    # A job that kills its process is not tried for ever, and the next engine finds a clean environment.
    ended = ["switched True", f"False {sys.getswitchinterval()}"]
    assert done.stdout.splitlines() == ["('pi5', 'pi6') True", "crashed True", *ended], done.stderr
    strange = {**known, "RAY_AUTH_TOKEN": "0" * 64}
    refused = subprocess.run(command, env=strange, capture_output=True, text=True, check=False, timeout=240)
    assert refused.returncode != 0 and not refused.stdout.strip()
    assert "does not answer, or takes another token" in refused.stderr.splitlines()[-1]

    assert cluster("down") == {"build": "ended", "rack": "ended"}
    _, alive = psutil.wait_procs(running, timeout=60)
    assert not alive, [one.cmdline() for one in alive]
    assert cluster("down") == {"build": "away", "rack": "away"}


def test_a_folder_without_a_cluster_says_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["cluster", "up"]) == 2
    assert "there is no such file; describe the cluster there" in capsys.readouterr().err
