"""Installing, activating, rolling back, and what survives a full disk or a killed daemon."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import device_agent.runtime
from host.errors import BundleError, DeviceError, DeviceFull
from host.transport.local import connect_local
from host.transport.wire import Connection, DisconnectedError
from tests.integration.agent.conftest import await_none, local_agent, write_manifest

ROOT = Path(__file__).parents[3]


def active(device, name="small"):
    return [entry["version"] for entry in device.bundles() if entry["name"] == name and entry["active"]]


def test_a_bundle_is_installed_activated_and_rolled_back(device, bundle, other_bundle, golden):
    assert device.bundles() == []
    first = device.install(bundle, "small")
    assert active(device) == []
    device.activate("small")
    second = device.install(other_bundle, "small")
    device.activate("small")
    assert active(device) == [second]
    assert [one["version"] for one in device.bundles() if one["earlier"]] == [first]
    with device.open_session("tvm") as session:
        session.load(device.bundle_path("small"))
        z, _ = session.run([golden["x"], golden["unused"]])
        np.testing.assert_allclose(z, golden["z"] * 2, rtol=1e-4, atol=1e-5)
        assert device.rollback("small") == first
        session.load(device.bundle_path("small"))
        z, _ = session.run([golden["x"], golden["unused"]])
        np.testing.assert_allclose(z, golden["z"], rtol=1e-4, atol=1e-5)
    assert not any(one["earlier"] for one in device.bundles())
    with pytest.raises(BundleError, match="no earlier version"):
        device.rollback("small")
    device.remove("small")
    assert device.bundles() == []


def test_bundles_outlive_the_agent(store_dir, bundle):
    with connect_local(store_dir) as device:
        version = device.install(bundle, "small")
        device.activate("small", version)
    with connect_local(store_dir) as device:
        assert active(device) == [version]


def test_what_cannot_be_installed_is_named(device, bundle, tmp_path):
    with pytest.raises(BundleError, match="it is not a bundle"):
        device.install(tmp_path, "small")
    folder = tmp_path / "damaged"
    shutil.copytree(bundle, folder)
    (folder / "lib.so").write_bytes(b"other")
    with pytest.raises(BundleError, match=r"lib\.so does not match the hash in the manifest"):
        device.install(folder, "small")
    with pytest.raises(BundleError, match="no name for a bundle"):
        device.install(bundle, "../small")
    with pytest.raises(BundleError, match="no bundle ghost is installed"):
        device.rollback("ghost")
    with pytest.raises(BundleError, match="none installed just now"):
        device.activate("small")
    assert device.bundles() == []


def test_a_full_device_keeps_what_it_had(device, bundle, tmp_path):
    old = device.install(bundle, "small")
    device.activate("small")
    folder = tmp_path / "large"
    shutil.copytree(bundle, folder)
    (folder / "extra.bin").write_bytes(bytes(4 << 20))
    write_manifest(folder)
    pid = local_agent(device).process.pid
    # No file of the agent may grow beyond a megabyte, which to a program is what a full disk is.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    with pytest.raises(DeviceFull, match="no space left on the device"):
        device.install(folder, "small")
    assert active(device) == [old]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert device.install(folder, "small") != old


def test_a_truncated_upload_leaves_nothing(store_dir, bundle):
    with connect_local(store_dir) as device:
        other = Connection(local_agent(device).port, local_agent(device).token, "local")
        other._send({"command": "file.put", "sha256": "0" * 64, "blob_bytes": 1000})
        other._socket.sendall(b"only this")
        other.close()
        assert await_empty(store_dir / "uploads")
        device.activate("small", device.install(bundle, "small"))
        assert len(active(device)) == 1


def await_empty(folder):
    until = time.monotonic() + 60
    while any(folder.iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(folder.iterdir())


def test_content_is_sent_once(device, bundle, tmp_path, monkeypatch):
    sent = []
    real = Connection.send_file
    monkeypatch.setattr(Connection, "send_file", lambda *a: (sent.append(a[2].name), real(*a))[1])
    version = device.install(bundle, "small")
    assert sorted(sent) == sorted(file.name for file in bundle.iterdir())
    assert device.install(bundle, "again") == version
    assert len(sent) == 5


KILLED_DAEMON = """
import json, os, signal, sys
from device_agent.serve.daemon import Daemon, Settings
from device_agent.store.bundles import BundleStore
from device_agent.wire.shared_token import SharedToken
steps = 0
def checkpoint(name):
    global steps
    steps += 1
    if steps == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
daemon = Daemon(Settings(sys.argv[1]), SharedToken("secret"), BundleStore(sys.argv[1], checkpoint))
print(json.dumps({"port": daemon.port}), flush=True)
daemon.run()
"""


def updated_until(step, store_dir, bundle):
    """Updates through a daemon that is killed at a step; whether it was."""
    command = [sys.executable, "-c", KILLED_DAEMON, str(store_dir), str(step)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as daemon:
        connection = Connection(json.loads(daemon.stdout.readline())["port"], "secret", "board")
        hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in bundle.iterdir()}
        try:
            for file in bundle.iterdir():
                connection.send_file({"command": "file.put", "sha256": hashes[file.name]}, file)
            reply, _ = connection.request({"command": "bundle.install", "name": "small", "files": hashes})
            connection.request({"command": "bundle.activate", "name": "small", "version": reply["version"]})
        except DisconnectedError:
            return True
        finally:
            connection.close()
            daemon.kill()
    return False


def test_a_daemon_killed_while_updating_leaves_a_bundle_that_runs(store_dir, bundle, other_bundle, golden):
    found = set()
    for step in range(1, 40):
        folder = store_dir / str(step)
        with connect_local(folder) as device:
            device.install(bundle, "small")
            device.activate("small")
        killed = updated_until(step, folder, other_bundle)
        with connect_local(folder) as device:
            model = device_agent.runtime.load(device.bundle_path("small"), keys=folder / "trust.json")
            z = model.run([golden["x"], golden["unused"]])["z"]
            factor = round(float(z.max() / golden["z"].max()))
            np.testing.assert_allclose(z, golden["z"] * factor, rtol=1e-4, atol=1e-5)
            found.add(factor)
        if not killed:
            break
    assert found == {1, 2} and step > 5


def test_an_upload_of_another_content_is_refused(device):
    other = Connection(local_agent(device).port, local_agent(device).token, "local")
    other._send({"command": "file.put", "sha256": "0" * 64, "blob_bytes": 3})
    other._socket.sendall(b"abc")
    with pytest.raises(DeviceError, match="another content"):
        other._reply()
    # The connection is still in step.
    assert other.request({"command": "describe"})[0]["ok"]
    other.close()


def test_an_agent_that_goes_away_is_reported_once_and_for_all(store_dir, bundle):
    with connect_local(store_dir) as device:
        session = device.open_session("tvm")
        os.kill(local_agent(device).process.pid, signal.SIGKILL)
        with pytest.raises(DeviceError, match=r"agent went away .*signal 9"):
            device.install(bundle, "small")
        with pytest.raises(DeviceError, match="went away"):
            session.load(bundle)
    assert await_none(store_dir) == set()
    with connect_local(store_dir) as device:
        assert device.bundles() == []
        assert [entry.name for entry in (store_dir / "run").iterdir()] == [
            str(local_agent(device).process.pid)
        ]


def test_unknown_commands_and_missing_fields_are_named(device):
    with pytest.raises(DeviceError, match="unknown command dance"):
        device.request("dance")
    with pytest.raises(DeviceError, match="name is missing"):
        device.request("bundle.activate")


def test_an_agent_that_cannot_start_says_why(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(DeviceError, match=r"did not start .*code 1.*file.*EDGETLM_STORE"):
        connect_local(blocked)


def test_the_wire_breaks_when_the_agent_shuts_down(store_dir):
    with connect_local(store_dir) as device:
        other = Connection(local_agent(device).port, local_agent(device).token, "local")
        other.request({"command": "shutdown"})
        local_agent(device).process.wait(60)
        with pytest.raises(DisconnectedError):
            other.request({"command": "state"})
        other.close()
        assert not Path(store_dir / "run" / str(local_agent(device).process.pid)).exists()
