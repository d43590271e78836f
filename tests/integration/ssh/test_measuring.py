"""Models and kernels on a board over SSH, what a cut does to them, and who else gets at them: nobody."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

import sdk
from host.devices import DeviceEntry, Registry
from host.errors import DeviceError, EngineError, SessionLost
from host.measure.kernels import KernelRunner
from host.transport import Device, connect
from host.transport.installing import install_agent
from host.transport.ssh import connect_ssh
from host.transport.wire import Connection
from tests.integration.agent.conftest import write_bundle
from tests.integration.small_models import convnet
from tests.integration.ssh.conftest import stop_agent
from tests.integration.ssh.sshd import Sshd, cutting, make_client

_NOBODY = 65534
_WAIT_S = 20.0


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One board for all tests here, with the agent and the runtime of compiled models."""
    folder = tmp_path_factory.mktemp("bench")
    home = make_client(folder / "client")
    sshd = Sshd(folder / "board", home)
    sshd.start()
    sshd.accept_host_key()
    entry = DeviceEntry("bench", "ssh", "127.0.0.1", "", sshd.port)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "ssh-cache"))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        found = install_agent(entry)
        Registry(home / ".config" / "edgetlm" / "devices.toml").add(found.entry)
    yield sshd
    stop_agent(sshd)
    sshd.stop()


@pytest.fixture(autouse=True)
def client_home(bench: Sshd, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME of the host's user, who knows the board."""
    monkeypatch.setenv("HOME", str(bench.client))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(bench.client / ".config"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return bench.client


@pytest.fixture
def device(bench: Sshd) -> Iterator[Device]:
    with connect("bench") as opened:
        yield opened


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A compiled model."""
    model = convnet(tmp_path / "net.onnx")
    folder = tmp_path / "bundle"
    sdk.compile(model, target="local", output=folder, backend="tvm", threads=1)
    return folder


def test_a_kernel_library_runs_through_a_port_that_takes_one_client(device):
    with device.open_session("tvm") as session:
        remote = session.rpc()
        array = remote.cpu(0)
        assert array.exist
        port = device.forward(session.port)
        # Whoever comes second is refused, or hung up on where the port is just being closed.
        with _dialled(port), contextlib.suppress(ConnectionError), _dialled(port) as second:
            assert second.recv(1) == b""
        del array, remote


def test_kernels_are_measured_one_after_another(device, tmp_path):
    """Libraries come and go on the board while the client's objects are freed at any moment."""
    library = write_bundle(tmp_path / "relu") / "lib.so"
    with device.open_session("tvm") as session, KernelRunner(session) as runner:
        for _ in range(10):
            measured = runner.measure(
                library, "relu", [((4, 32), "float32")] * 2, repeat=1, min_repeat_ms=0.0
            )
            assert measured.n == 1


def test_no_port_is_open_beyond_loopback(device, bench):
    with device.open_session("tvm") as session:
        agent = _agent_process(bench)
        processes = [agent, *agent.children(recursive=True)]
        listening = [
            one.laddr.ip
            for process in processes
            for one in process.net_connections("inet")
            if one.status == psutil.CONN_LISTEN
        ]
        assert len(listening) >= 2
        assert set(listening) == {"127.0.0.1"}
        assert session.pid in {process.pid for process in processes}


def test_a_cut_in_a_measurement_is_told_and_leaves_nothing(device, bench, bundle):
    session = device.open_session("tvm")
    session.load(bundle)
    session.run([np.zeros((1, 3, 16, 16), np.float32)])
    executor = psutil.Process(session.pid)
    threading.Timer(1.0, bench.cut).start()
    with pytest.raises(DeviceError, match=r"bench: .*was cut.*connect again"):
        session.measure(min_time_s=60.0, max_time_s=60.0, max_repeats=10**9)
    device.close()
    _gone, alive = psutil.wait_procs([executor], timeout=_WAIT_S)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    # The board is free at once for who comes back.
    with connect("bench") as again, again.open_session("tvm") as second:
        second.load(bundle)
        times = second.measure([np.zeros((1, 3, 16, 16), np.float32)], min_time_s=0.01, min_repeats=3).times_s
        assert len(times) >= 3


def test_a_cut_in_a_models_upload_leaves_nothing(bench, tmp_path):
    model = tmp_path / "weights.bin"
    model.write_bytes(np.random.default_rng(0).bytes(6_000_000))
    entry = Registry().get("bench")
    uploads = bench.root / "device" / "uploads"
    with cutting(bench.port) as proxy:
        known = bench.client / ".ssh" / "known_hosts"
        before = known.read_text()
        known.write_text(before + before.replace(str(bench.port), str(proxy.port)))
        with connect_ssh(replace(entry, port=proxy.port)) as device:
            proxy.allowed_bytes = proxy.passed_bytes + 3_000_000
            with pytest.raises(DeviceError, match="connect again"):
                device.upload(model)
    with connect("bench") as device:
        _await(lambda: not list(uploads.glob("*.part")))
        digest = device.upload(model)
        assert (uploads / digest).stat().st_size == 6_000_000


def test_an_executor_that_dies_is_told_from_a_cut(device, bundle):
    with device.open_session("tvm") as session:
        session.load(bundle)
        os.kill(session.pid, 9)
        with pytest.raises(SessionLost, match="SIGKILL"):
            session.run([np.zeros((1, 3, 16, 16), np.float32)])
        session.load(bundle)


def test_an_engine_without_a_payload_says_why(device):
    with pytest.raises(EngineError, match="tensorrt"):
        device.open_session("tensorrt")


def test_tickets_let_in_once(device):
    agent = device.agent
    ticket = agent.ticket()
    port = ticket.port
    Connection(port, ticket.token, "bench", agent.dial).close()
    for secret in (ticket.token, "guess", ticket.token[:-1] + "0", ""):
        with pytest.raises(DeviceError, match="wrong secret"):
            Connection(port, secret, "bench", agent.dial)


def test_a_second_host_is_told_who_has_the_board(device):
    with device.open_session("tvm"), connect("bench") as other:
        with pytest.raises(DeviceError, match=r"in use.*@") as caught:
            other.open_session("tvm")
        assert "\n" not in str(caught.value)


def test_another_user_of_either_machine_gets_nothing(device, bench):
    """Needs root, to be another user."""
    with device.open_session("tvm") as session:
        readable = [path for path in bench.root.rglob("*") if path.is_file()]
        assert any(path.name == "tickets" for path in bench.root.rglob("*"))
        forwarded = device.forward(session.port)
        answers = _as_nobody(_snoop, [str(path) for path in readable], [session.port, forwarded])
        assert answers["files"] == []
        # The executor's port is anybody's to dial, but it says nothing to who has no key of the session.
        assert answers["ports"] == {session.port: b"", forwarded: b""}
        # The stranger did not take the forwarded port away from its owner.
        with socket.create_connection(("127.0.0.1", forwarded), timeout=5):
            pass


def _await(holds: Callable[[], bool]) -> None:
    """The board notices a cut when its own end of the connection says so."""
    until = time.monotonic() + _WAIT_S
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)
    assert holds()


def _dialled(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_WAIT_S)


def _agent_process(board: Sshd) -> psutil.Process:
    (found,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "serve" in (process.info["cmdline"] or []) and str(board.root) in process.info["cmdline"]
    ]
    return found


def _snoop(paths: list[str], ports: list[int]) -> dict[str, object]:
    files = [path for path in paths if os.access(path, os.R_OK)]
    said = {}
    for port in ports:
        said[port] = b""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                # TVM's handshake with a key that is wrong.
                key = b"server:guess"
                connection.sendall((0xFF271).to_bytes(4, "little") + len(key).to_bytes(4, "little") + key)
                connection.settimeout(3)
                answer = connection.recv(4)
                # A refusal is a code of TVM's, and the end.
                said[port] = b"" if answer in (b"", (0xFF271 + 2).to_bytes(4, "little")) else answer
        except OSError:
            pass
    return {"files": files, "ports": said}


def _nobody(function, arguments, answers) -> None:
    os.setgroups([])
    os.setgid(_NOBODY)
    os.setuid(_NOBODY)
    answers.put(function(*arguments))


def _as_nobody(function, *arguments):
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=_nobody, args=(function, arguments, answers))
    process.start()
    process.join(_WAIT_S)
    assert process.exitcode == 0
    found = answers.get()
    process.close()
    return found


def test_the_wait_of_a_cut_is_short(device, bench):
    begin = time.monotonic()
    bench.cut()
    with pytest.raises(DeviceError, match="connect again"):
        device.state()
    # Not a figure: the point is that no time limit had to pass.
    assert time.monotonic() - begin < _WAIT_S
