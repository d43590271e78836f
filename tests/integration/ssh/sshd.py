"""A board of the test's own: an sshd on a loopback port, with its own host key, users' keys and HOME."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

# Path of another interpreter for the boards of these tests, for example an older one.
BOARD_PYTHON = "EDGETLM_BOARD_PYTHON"
_READY_S = 60.0


def make_key(path: Path, passphrase: str = "") -> Path:
    """A new key pair; returns the private half's file."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def make_client(home: Path) -> Path:
    """HOME of a host's user, with a key; returns it."""
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    make_key(home / ".ssh" / "id_ed25519")
    return home


def _programs(folder: Path) -> Path:
    """A folder with an interpreter that has no packages: whatever a model needs has to be sent."""
    if other := os.environ.get(BOARD_PYTHON):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python3").symlink_to(other)
    else:
        bare = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)]
        subprocess.run(bare, check=True)
    return folder / "bin"


class Sshd:
    """An SSH server that logs in whoever runs the tests, with HOME in a folder of the test's.

    Attributes:
        port: on the loopback interface.
        home: HOME of who logs in.

    Args:
        folder: for its files.
        client: HOME of the client, whose key it accepts.
        extra: lines of its configuration that go before the others.
    """

    def __init__(self, folder: Path, client: Path, extra: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.host_key = make_key(folder / "host_key")
        self.authorized = folder / "authorized_keys"
        self.authorized.write_text((client / ".ssh" / "id_ed25519.pub").read_text())
        self.client = client
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        programs = _programs(folder / "python")
        lines = [
            *extra,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.authorized}",
            f"PidFile {folder / 'pid'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            f"Subsystem sftp internal-sftp -d {self.home}",
            f"SetEnv HOME={self.home} PATH={programs}:/usr/bin:/bin XDG_RUNTIME_DIR={folder}",
        ]
        (folder / "config").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> Path:
        """The agent's folder."""
        return self.home / ".local" / "share" / "edgetlm"

    def start(self) -> None:
        """Start it and wait until it listens."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it locks itself up before a login
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.under(), "/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            assert self._process.poll() is None, self.log()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)
        raise AssertionError(self.log())

    def under(self) -> list[str]:
        """What the server is started by."""
        return []

    def log(self) -> str:
        """What it wrote so far."""
        return (self.folder / "log").read_text()

    def accept_host_key(self) -> None:
        """Have the client know this server."""
        kind, key, *_ = self.host_key.with_suffix(".pub").read_text().split()
        known = self.client / ".ssh" / "known_hosts"
        with known.open("a") as file:
            file.write(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def logins(self) -> list[psutil.Process]:
        """The processes that serve connections."""
        assert self._process is not None
        return psutil.Process(self._process.pid).children()

    def wait_for_nobody(self) -> None:
        """Until what served the connections has ended, with all that it had still to write."""
        _, left = psutil.wait_procs(self.logins(), _READY_S)
        assert not left

    def cut(self) -> None:
        """End every connection at once, without a word."""
        for process in self.logins():
            with contextlib.suppress(psutil.NoSuchProcess):  # ended by itself meanwhile
                for one in [process, *process.children(recursive=True)]:
                    if one.name().startswith("sshd"):
                        one.kill()

    def stop(self) -> None:
        """End it with its connections."""
        if self._process is not None:
            self.cut()
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)
            self._process = None


class CuttingProxy:
    """A port that leads to another one, until so many bytes have gone that way.

    Attributes:
        port: where it listens.

    Args:
        target: port that it leads to.
        allowed_bytes: after which every connection is cut; None for no limit yet.
    """

    def __init__(self, target: int, allowed_bytes: int | None = None) -> None:
        self.target = target
        self.allowed_bytes = allowed_bytes
        self.passed_bytes = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            self._ends += [client, server]
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if counted:
                    self.passed_bytes += len(data)
                    if self.allowed_bytes is not None and self.passed_bytes > self.allowed_bytes:
                        self.cut()
                        return
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End every connection at once."""
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def cutting(target: int, allowed_bytes: int | None = None) -> Iterator[CuttingProxy]:
    """A `CuttingProxy` for a while."""
    proxy = CuttingProxy(target, allowed_bytes)
    try:
        yield proxy
    finally:
        proxy.close()
