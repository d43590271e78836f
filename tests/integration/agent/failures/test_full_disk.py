"""The disk fills up in an upload, a session, an installation: what was there stays, and work goes on."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from host.errors import DeviceFull
from tests.integration.agent.faults import MB, digest_of, large_bundle, put, send_bundle, uploads
from tests.integration.agent.service import OPEN, Service


@pytest.fixture
def small_disk(tmp_path):
    """A service whose files may be no larger than 4 MB, which fails like a full disk does: in the middle."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * MB, limit[1]))
    try:
        service = Service(tmp_path / "home")
        service.ticket()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    with service:
        yield service


def test_a_disk_that_fills_up_in_an_upload(small_disk):
    connection = small_disk.connect()
    kept = put(connection, b"kept")
    with pytest.raises(DeviceFull, match="no space left on the device"):
        put(connection, os.urandom(6 * MB))
    assert uploads(small_disk) == [kept]
    # The connection is in step, and what fits is taken.
    data = os.urandom(2 * MB)
    put(connection, data)
    assert uploads(small_disk) == sorted([kept, digest_of(data)])


def test_a_disk_that_fills_up_in_a_session(small_disk):
    """A kernel that is sent over RPC: the session says so and lives on."""
    connection = small_disk.connect()
    session = connection.request(OPEN)[0]
    from tvm import rpc

    remote = rpc.connect("127.0.0.1", session["port"], key=session["key"])
    with pytest.raises(Exception, match=r"no space left on the device for kernel\.so"):
        remote.upload(bytearray(6 * MB), "kernel.so")
    remote.upload(bytearray(b"fits"), "small.so")
    assert remote.download("small.so") == b"fits"
    assert connection.request({"command": "describe"})[0]["ok"]


def mounted(folder: Path, megabytes: int):
    """A small file system, where this user may make one."""
    folder.mkdir()
    options = f"size={megabytes}m"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    return done.returncode == 0


def test_a_disk_that_is_full_in_an_installation(tmp_path):
    """With a file system of its own where tests run as root; a limit of files' sizes stands in elsewhere."""
    folder = tmp_path / "disk"
    own = mounted(folder, 24)
    service = Service(folder / "home")
    service.ticket()
    try:
        with service:
            connection = service.connect()
            bundle = large_bundle(tmp_path / "bundle", 2)
            files = send_bundle(connection, bundle)
            version = connection.request({"command": "bundle.install", "name": "small", "files": files})[0]
            connection.request({"command": "bundle.activate", "name": "small", **version_of(version)})
            ballast = folder / "ballast"
            fill(ballast, own)
            if own:
                with pytest.raises(DeviceFull):
                    put(connection, os.urandom(MB))
                done = service.command("ticket")
                assert done.returncode == 1 and "No space left" in done.stderr
            entry = connection.request({"command": "bundle.list"})[0]["bundles"]
            assert [one["active"] for one in entry] == [True]
            ballast.unlink(missing_ok=True)
            put(connection, os.urandom(MB))
            connection.request(OPEN)
            service.connect()
    finally:
        if own:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def version_of(reply) -> dict[str, str]:
    return {"version": reply["version"]}


def fill(path: Path, own: bool) -> None:
    """Takes all that is left of a file system of the test's own."""
    if not own:
        return
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            return
