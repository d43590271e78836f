"""What goes wrong with a board, injected: the agent killed, the disk full, the clock wrong, the power gone.

Afterwards nothing is lost that was there, nothing is half there, and no process runs on.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from host.errors import BundleError, DeviceError, DeviceFull, EdgeError
from host.transport.wire import DisconnectedError
from tests.integration.agent.conftest import write_manifest
from tests.integration.agent.service import OPEN, ROOT, Service, wait_for
from tests.unit.device_agent.mode_trees import contents, make_cpufreq, make_nvpmodel

MB = 1 << 20


@pytest.fixture
def service(tmp_path):
    with Service(tmp_path / "home") as service:
        yield service


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(connection, data: bytes) -> str:
    """Uploads some bytes."""
    digest = digest_of(data)
    connection.request({"command": "file.put", "sha256": digest}, [data])
    return digest


def uploads(service) -> list[str]:
    return sorted(entry.name for entry in (service.home / "device/uploads").iterdir())


def large_bundle(folder: Path, megabytes: int = 48) -> Path:
    """A bundle whose files take a while to install."""
    folder.mkdir()
    (folder / "lib.so").write_bytes(os.urandom(1000))
    (folder / "params.bin").write_bytes(os.urandom(megabytes * MB))
    write_manifest(folder)
    return folder


def send_bundle(connection, bundle: Path) -> dict[str, str]:
    return {file.name: put(connection, file.read_bytes()) for file in bundle.iterdir()}


# -- the agent is killed


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
from device_agent import executor
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


@pytest.mark.parametrize("end", ["executor", "agent"])
def test_the_meter_ends_with_its_executor(board, bundle, golden, end):
    zone = board.system_root / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, content in (("name", "package-0"), ("max_energy_range_uj", "1000000"), ("energy_uj", "5")):
        (zone / name).write_text(content + "\n")
    agent = start_on(board)
    connection = board.connect()
    session = connection.request(OPEN)[0]
    worker = board.session(session)
    worker.request({"command": "load", "path": str(bundle)})
    worker.set(golden)
    plan = {"min_time_s": 60.0, "max_time_s": 60.0, "idle_s": 0.0, "warmup_s": 0.0}
    worker._send({"command": "measure", "plan": plan})

    def meters():
        return [pid for pid, words in board.processes().items() if "power.meter" in words]

    assert wait_for(meters)
    os.kill(session["pid"] if end == "executor" else agent.pid, signal.SIGKILL)
    assert wait_for(lambda: not meters() and session["pid"] not in board.processes())
    if end == "executor":
        assert connection.request({"command": "state"})[0]["ok"]
        agent.terminate()
    agent.wait()


# -- power modes


@pytest.fixture
def board(tmp_path):
    """A machine with power modes, and an agent that takes it for its own."""
    root = tmp_path / "root"
    make_cpufreq(root)
    make_nvpmodel(root)
    (root / "proc/meminfo").write_text("MemTotal: 8000000 kB\n")
    with Service(tmp_path / "home") as service:
        service.system_root = root
        yield service


def start_on(board) -> subprocess.Popen:
    """An agent of the board; the service's tickets are for it."""
    command = [sys.executable, "-m", "device_agent", "serve", "--home", str(board.home)]
    agent = subprocess.Popen(
        [*command, "--system-root", str(board.system_root)], cwd=ROOT, stdout=subprocess.PIPE
    )
    with agent.stdout:
        assert agent.stdout.readline()
    return agent


def test_power_modes_are_restored_however_their_client_ends(board):
    before = contents(board.system_root)
    agent = start_on(board)
    for end in ("restore", "session", "cut", "stop"):
        connection = board.connect(client="ada@attic")
        session = connection.request({**OPEN, "engine": "onnxruntime"})[0]["session"]
        named = {"session": session} if end == "session" else {}
        connection.request({"command": "modes.set", "mode": "7W", **named})
        reply = connection.request({"command": "modes.set", "mode": "performance", **named})[0]
        assert {one["name"] for one in reply["modes"] if one["current"]} >= {"7W", "performance"}
        assert contents(board.system_root) != before
        if end == "restore":
            connection.request({"command": "modes.restore"})
        elif end == "session":
            connection.request({"command": "session.close", "session": session})
        elif end == "cut":
            other = board.connect()
            connection.close()
            other.request({"command": "device.hold", "wait_s": 30})
            other.close()
        else:
            agent.terminate()
            assert agent.wait(60) == 0
        assert contents(board.system_root) == before, end
        connection.close()


def test_power_modes_are_restored_by_the_next_start_after_a_kill(board):
    before = contents(board.system_root)
    agent = start_on(board)
    connection = board.connect()
    connection.request({"command": "modes.set", "mode": "7W"})
    connection.request({"command": "modes.set", "mode": "cpu-50%"})
    agent.kill()
    agent.wait()
    assert contents(board.system_root) != before
    agent = start_on(board)
    assert contents(board.system_root) == before
    assert len(list((board.home / "device/run").iterdir())) == 1
    agent.terminate()
    agent.wait()


def test_a_device_in_other_modes_is_in_use(board):
    agent = start_on(board)
    one, other = board.connect(client="ada@attic"), board.connect(client="bob@bench")
    one.request({"command": "modes.set", "mode": "powersave"})
    with pytest.raises(DeviceError, match="in use by ada@attic"):
        other.request(OPEN)
    with pytest.raises(DeviceError, match="set by ada@attic"):
        other.request({"command": "modes.set", "mode": "performance"})
    with pytest.raises(DeviceError, match="set by ada@attic"):
        other.request({"command": "modes.restore"})
    assert other.request({"command": "modes.list"})[0]["changed"]
    one.request({"command": "modes.restore"})
    other.request({"command": "modes.set", "mode": "performance"})
    agent.terminate()
    agent.wait()


def test_a_journal_that_cannot_be_written_changes_nothing(board):
    before = contents(board.system_root)
    agent = start_on(board)
    connection = board.connect()
    run = board.home / "device/run" / str(agent.pid)
    real = run.with_name("moved")
    run.rename(real)
    run.write_text("no folder any more")
    with pytest.raises(DeviceError):
        connection.request({"command": "modes.set", "mode": "performance"})
    assert contents(board.system_root) == before
    run.unlink()
    real.rename(run)
    connection.request({"command": "modes.set", "mode": "performance"})
    agent.terminate()
    agent.wait()
    assert contents(board.system_root) == before


# -- the disk is full


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


# -- the clock jumps

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


# -- the board restarts


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
