"""The board restarts, its power fails, its clock jumps, two hosts come at once: nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from host.errors import BundleError, DeviceError, EdgeError
from tests.integration.agent.faults import MB, digest_of, large_bundle, put, send_bundle, uploads
from tests.integration.agent.service import OPEN, Service, wait_for

JUMPING = """
import random, time
_real, _real_ns = time.time, time.time_ns
_source = random.Random(0)
time.time = lambda: _real() + _source.choice((-4e8, -86400, 0, 86400, 3e8))
time.time_ns = lambda: int(time.time() * 1e9)
"""


def test_nothing_depends_on_the_time_of_day(tmp_path, bundle, golden, monkeypatch):
    """The clock of every process of the agent jumps by years at every look."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(JUMPING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    probe = [sys.executable, "-c", "import time; print(len({int(time.time()) for _ in range(50)}))"]
    assert int(subprocess.run(probe, capture_output=True, check=True).stdout) > 3
    with Service(tmp_path / "home") as service:
        connection = service.connect(client="ada@attic")
        session = service.session(connection.request({**OPEN, "time_limit_s": 30})[0])
        session.request({"command": "load", "path": str(bundle)})
        session.set(golden)
        reply = session.request({"command": "measure", "plan": {"min_time_s": 0.2, "energy": False}})[0]
        assert min(reply["times_s"]) > 0 and sum(reply["times_s"]) * reply["number"] < 30
        held = connection.request({"command": "device.holder"})[0]["holder"]["seconds"]
        assert 0 <= held < 300
        for content in (b"a", b"b", b"c"):
            put(connection, content * MB)
        assert len(uploads(service)) == 3
        service.connect().close()


def test_a_board_that_restarts(service, tmp_path):
    """The home is kept as it lies, all processes are gone at once, and their ids belong to others."""
    bundle = large_bundle(tmp_path / "bundle", 4)
    connection = service.connect(client="ada@attic")
    files = send_bundle(connection, bundle)
    version = connection.request({"command": "bundle.install", "name": "kept", "files": files})[0]["version"]
    connection.request({"command": "bundle.activate", "name": "kept", "version": version})
    connection.request(OPEN)
    unused = service.ticket()
    data = os.urandom(4 * MB)
    upload = service.connect()
    upload._send({"command": "file.put", "sha256": digest_of(data), "blob_bytes": len(data)})
    upload._socket.sendall(data[:MB])
    assert wait_for(lambda: any(name.endswith(".part") for name in uploads(service)))
    old = service.pid
    for pid in service.processes():
        os.kill(pid, signal.SIGKILL)
    assert wait_for(lambda: not service.processes())
    # After a start the old process ids and the old port are somebody else's.
    run = service.home / "device/run"
    (run / str(old)).rename(run / str(os.getpid()))
    record = json.loads((service.home / "device/agent.json").read_text())
    record.update(pid=os.getpid(), folder=str(run / str(os.getpid())))
    (service.home / "device/agent.json").write_text(json.dumps(record))
    (service.home / "device/staging/left").mkdir()
    again = service.connect()
    assert service.pid not in (old, os.getpid())
    assert [entry.name for entry in run.iterdir()] == [str(service.pid)]
    assert list((service.home / "device/staging").iterdir()) == []
    assert uploads(service) == sorted(files.values())
    entry = again.request({"command": "bundle.list"})[0]["bundles"]
    assert [(one["name"], one["version"], one["active"]) for one in entry] == [("kept", version, True)]
    with pytest.raises(DeviceError, match="was used or has expired"):
        service.dial(service.ticket()["port"], unused["token"])
    again.request(OPEN)


def test_an_upload_that_a_power_cut_emptied_is_sent_again(service, tmp_path):
    bundle = large_bundle(tmp_path / "bundle", 1)
    connection = service.connect()
    files = send_bundle(connection, bundle)
    (service.home / "device/uploads" / files["params.bin"]).write_bytes(b"")
    with pytest.raises(BundleError, match=r"params.bin is damaged; send it and install again"):
        connection.request({"command": "bundle.install", "name": "cut", "files": files})
    assert not connection.request({"command": "file.has", "sha256": files["params.bin"]})[0]["has"]
    send_bundle(connection, bundle)
    connection.request({"command": "bundle.install", "name": "cut", "files": files})


def test_two_hosts_at_once_lose_nothing(service, tmp_path):
    """Both upload and install while one of them has the device."""
    bundles = [large_bundle(tmp_path / name, 2) for name in ("one", "two")]
    connections = [service.connect(), service.connect()]
    connections[0].request(OPEN)
    failures = []

    def work(index):
        try:
            for _ in range(5):
                files = send_bundle(connections[index], bundles[index])
                request = {"command": "bundle.install", "name": bundles[index].name, "files": files}
                version = connections[index].request(request)[0]["version"]
                request = {"command": "bundle.activate", "name": bundles[index].name, "version": version}
                connections[index].request(request)
        except EdgeError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    entries = connections[0].request({"command": "bundle.list"})[0]["bundles"]
    assert [(one["name"], one["active"]) for one in entries] == [("one", True), ("two", True)]
