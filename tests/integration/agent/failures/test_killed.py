"""The agent or an executor is killed at work: nothing is half there afterwards, and no process runs on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from host.transport.wire import DisconnectedError
from tests.integration.agent.faults import MB, digest_of, large_bundle, put, send_bundle, uploads
from tests.integration.agent.service import OPEN, ROOT, Service, wait_for


def test_killed_in_an_upload(service):
    connection = service.connect()
    kept = put(connection, b"kept")
    data = os.urandom(8 * MB)
    connection._send({"command": "file.put", "sha256": digest_of(data), "blob_bytes": len(data)})
    connection._socket.sendall(data[: 3 * MB])
    assert wait_for(lambda: any(name.endswith(".part") for name in uploads(service)))
    service.kill()
    assert len(uploads(service)) == 2
    again = service.connect()
    assert uploads(service) == [kept]
    assert not again.request({"command": "file.has", "sha256": digest_of(data)})[0]["has"]
    put(again, data)
    assert uploads(service) == sorted([kept, digest_of(data)])


def test_an_upload_that_goes_on_is_not_taken_for_one_that_was_left(service, tmp_path):
    """Another agent may start on the same store meanwhile."""
    connection = service.connect()
    data = os.urandom(4 * MB)
    connection._send({"command": "file.put", "sha256": digest_of(data), "blob_bytes": len(data)})
    connection._socket.sendall(data[:MB])
    assert wait_for(lambda: any(name.endswith(".part") for name in uploads(service)))
    token = tmp_path / "token"
    token.write_text("secret")
    command = [sys.executable, "-m", "device_agent", "serve", "--token-file", str(token)]
    command += ["--store", str(service.home / "device")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        connection._socket.sendall(data[MB:])
        connection._reply()
        other.terminate()
    assert uploads(service) == [digest_of(data)]


def test_killed_in_an_installation(service, tmp_path):
    bundle = large_bundle(tmp_path / "bundle")
    connection = service.connect()
    files = send_bundle(connection, bundle)
    staging = service.home / "device/staging"
    connection._send({"command": "bundle.install", "name": "large", "files": files})
    assert wait_for(lambda: list(staging.rglob("params.bin")))
    service.kill()
    assert list(staging.iterdir()) != []
    again = service.connect()
    assert list(staging.iterdir()) == []
    assert again.request({"command": "bundle.list"})[0]["bundles"] == []
    version = again.request({"command": "bundle.install", "name": "large", "files": files})[0]["version"]
    again.request({"command": "bundle.activate", "name": "large", "version": version})
    assert again.request({"command": "bundle.list"})[0]["bundles"][0]["active"]


def test_killed_in_a_measurement(service, bundle, golden):
    """The host is told, and the next agent measures; see test_service for its tickets."""
    connection = service.connect()
    session = connection.request(OPEN)[0]
    worker = service.session(session)
    worker.request({"command": "load", "path": str(bundle)})
    worker.set(golden)
    worker._send({"command": "measure", "plan": {"min_time_s": 60.0, "max_time_s": 60.0}})
    time.sleep(0.5)
    service.kill()
    with pytest.raises(DisconnectedError):
        worker._reply()
    with pytest.raises(DisconnectedError):
        connection.request({"command": "state"})
    again = service.connect()
    assert len(list((service.home / "device/run").iterdir())) == 1
    worker = service.session(again.request(OPEN)[0])
    worker.request({"command": "load", "path": str(bundle)})
    worker.set(golden)
    assert worker.request({"command": "measure", "plan": {"min_time_s": 0.1, "warmup_s": 0.0}})[0]["times_s"]


FORKS = """
import os, subprocess, sys, time
from device_agent.execute import executor
real = executor.Executor.run
def run(self):
    # As a library would that wants to outlive its process: a session and a parent of its own.
    subprocess.run([sys.executable, "-c",
        "import os, sys, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0);"
        "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)", os.environ["STRAY"]])
    real(self)
executor.Executor.run = run
sys.exit(executor.main())
"""


@pytest.mark.parametrize("end", ["close", "cut", "crash", "kill"])
def test_what_an_executor_started_does_not_outlive_it(tmp_path, end, monkeypatch):
    monkeypatch.setenv("STRAY", str(tmp_path / "stray"))
    python = tmp_path / "python"
    (tmp_path / "forks.py").write_text(FORKS)
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/forks.py\n")
    python.chmod(0o755)
    with Service(tmp_path / "home") as service:
        connection = service.connect()
        session = connection.request({**OPEN, "python": str(python)})[0]
        stray = int(wait_for(lambda: (tmp_path / "stray").exists() and (tmp_path / "stray").read_text()))
        assert stray in service.processes() and os.getsid(stray) != os.getsid(session["pid"])
        if end == "close":
            connection.request({"command": "session.close", "session": session["session"]})
        elif end == "cut":
            connection.close()
        elif end == "crash":
            os.kill(session["pid"], signal.SIGSEGV)
        else:
            os.kill(service.pid, signal.SIGKILL)
            wait_for(lambda: session["pid"] not in service.processes())
            service.ticket()
        assert wait_for(lambda: stray not in service.processes())
