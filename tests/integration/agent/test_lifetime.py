"""No process is left behind, whoever ends and however."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from host.transport.local import connect_local
from tests.integration.agent.conftest import agent_pids, await_none, local_agent

ROOT = Path(__file__).parents[3]

# Whoever starts the tests in the background has the interrupt ignored, and children inherit that.
HOST = """
import signal, sys, time
from pathlib import Path
from host.transport.local import connect_local
signal.signal(signal.SIGINT, signal.default_int_handler)
device = connect_local(Path(sys.argv[1]))
session = device.open_session("tvm")
if sys.argv[2] == "paused":
    session.pause()
print("ready", flush=True)
if sys.argv[2] == "exit":
    sys.exit(0)
if sys.argv[2] == "error":
    raise RuntimeError("the program fails")
time.sleep(600)
"""


def start_host(store_dir, mode):
    command = [sys.executable, "-c", HOST, str(store_dir), mode]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
    return process


def test_closing_ends_agent_and_executors(store_dir):
    with connect_local(store_dir) as device:
        folder = local_agent(device).folder
        device.open_session("tvm")
        device.open_session("tvm")
        assert len(agent_pids(store_dir)) == 3
    assert agent_pids(store_dir) == set()
    assert not folder.exists() and list((store_dir / "run").iterdir()) == []


def test_closing_a_session_ends_its_executor(device, store_dir):
    session = device.open_session("tvm")
    pid = session.pid
    session.close()
    assert pid not in agent_pids(store_dir)


def test_closing_ends_paused_executors(store_dir):
    with connect_local(store_dir) as device:
        device.open_session("tvm").pause()
    assert agent_pids(store_dir) == set()


@pytest.mark.parametrize("mode", ["run", "paused"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_host_that_is_killed_leaves_none(store_dir, mode, number):
    host = start_host(store_dir, mode)
    assert len(agent_pids(store_dir)) == 2
    host.send_signal(number)
    host.wait(60)
    assert await_none(store_dir) == set()


@pytest.mark.parametrize("mode", ["exit", "error"])
def test_a_host_that_closes_nothing_leaves_none(store_dir, mode):
    start_host(store_dir, mode).wait(30)
    assert await_none(store_dir) == set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_that_is_killed_takes_its_executors_with_it(store_dir, number):
    with connect_local(store_dir) as device:
        device.open_session("tvm")
        device.open_session("tvm").pause()
        os.kill(local_agent(device).process.pid, number)
        assert await_none(store_dir) == set()


def test_a_daemon_serves_after_a_client_that_knocks_and_leaves(device):
    import socket

    for _ in range(5):
        socket.create_connection(("127.0.0.1", local_agent(device).port)).close()
    assert device.describe().cores >= 1


def test_an_agent_on_its_own_stops_on_sigterm(store_dir, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    command = [
        sys.executable,
        "-m",
        "device_agent",
        "serve",
        "--token-file",
        str(token),
        "--store",
        str(store_dir),
    ]
    agent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    with agent.stdout:
        assert b'"port"' in agent.stdout.readline()
    time.sleep(0.2)
    agent.terminate()
    assert agent.wait(60) == 0


@pytest.mark.parametrize("content", [None, ""])
def test_an_agent_needs_a_token(store_dir, tmp_path, content):
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    command = [
        sys.executable,
        "-m",
        "device_agent",
        "serve",
        "--token-file",
        str(token),
        "--store",
        str(store_dir),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("device-agent: ") and done.stderr.count("\n") == 1
