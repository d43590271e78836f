"""A client's HOME with a key, and an SSH server that takes it; the agent on it is ended with the test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from host.devices import DeviceEntry, Registry
from tests.integration.ssh.sshd import Sshd, make_client
from tests.shared_cache import share_with


@pytest.fixture(autouse=True)
def client_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME of the host's user, with a key of his own and no SSH agent."""
    home = make_client(tmp_path / "client")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home


@pytest.fixture(autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads are made once for all tests here."""
    cache = tmp_path_factory.getbasetemp() / "ssh-cache"
    share_with(cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture
def server(tmp_path: Path, client_home: Path) -> Iterator[Sshd]:
    """A board's SSH server, whose host key the client does not know yet."""
    sshd = Sshd(tmp_path / "board", client_home)
    sshd.start()
    yield sshd
    stop_agent(sshd)
    sshd.stop()


@pytest.fixture
def board(server: Sshd) -> Sshd:
    """A board whose host key the client knows."""
    server.accept_host_key()
    return server


@pytest.fixture
def entry(board: Sshd) -> DeviceEntry:
    """The board as a registered device, without an agent so far."""
    found = DeviceEntry("bench", "ssh", "127.0.0.1", "", board.port)
    Registry().add(found)
    return found


def stop_agent(sshd: Sshd) -> None:
    """End the agent that a test started on a board."""
    code = sshd.root / "agent" / "current"
    if code.exists():
        command = [sys.executable, "-m", "device_agent", "stop", "--home", str(sshd.root)]
        subprocess.run(command, cwd=code.resolve(), check=True, stdout=subprocess.DEVNULL)
