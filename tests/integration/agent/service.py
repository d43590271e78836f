"""The agent as a service: started through its command line, in a home of the test's own."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from host.transport.wire import Connection, pack
from tests.signing import trust

ROOT = Path(__file__).parents[3]
NOBODY = 65534


class Worker(Connection):
    """A connection to an executor that runs the small model of these tests."""

    def set(self, golden: dict[str, Any]) -> None:
        """Sets the model's inputs."""
        descriptions, blobs = pack([golden["x"], golden["unused"]])
        self.request({"command": "inputs", "tensors": descriptions}, blobs)


class Service:
    """A home and the commands that a user types on the board."""

    def __init__(self, home: Path, code: Path = ROOT) -> None:
        self.home = home
        self.code = code
        self.system_root = Path("/")
        self._connections: list[Connection] = []
        # As `sdk devices add` does: the bundles of these tests are signed by this host's key.
        trust(home / "device" / "trust.json")
        self.environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}

    def command(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs `python -m device_agent`."""
        command = [sys.executable, "-m", "device_agent", *words, "--home", str(self.home)]
        options = {"cwd": self.code, "env": self.environment, "timeout": 60, **options}
        return subprocess.run(command, capture_output=True, text=True, **options)

    def ticket(self) -> dict[str, Any]:
        """A ticket; the agent runs afterwards."""
        done = self.command("ticket")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def connect(self, **hello: str) -> Connection:
        """A connection that was let in; `hello` is what it says of itself. It is closed with the service."""
        ticket = self.ticket()
        real = Connection.request

        def request(connection, header, blobs=(), silence_s=None):
            extra = hello if header.get("command") == "hello" else {}
            return real(connection, {**header, **extra}, blobs, silence_s)

        named = type("Named", (Connection,), {"request": request})
        self._connections.append(named(ticket["port"], ticket["token"], "board"))
        return self._connections[-1]

    def dial(self, port: int, secret: str) -> Connection:
        """A connection by what is known of it; it is closed with the service."""
        self._connections.append(Connection(port, secret, "board"))
        return self._connections[-1]

    def session(self, contact: dict[str, Any]) -> Worker:
        """A connection to a session's executor; it is closed with the service."""
        worker = Worker(int(contact["port"]), str(contact["key"]), "executor")
        self._connections.append(worker)
        return worker

    @property
    def pid(self) -> int:
        """Process of the agent, as it was written down last."""
        return int(json.loads((self.home / "device/agent.json").read_text())["pid"])

    def kill(self) -> None:
        """Ends the agent without warning, and waits until all its executors are gone."""
        os.kill(self.pid, signal.SIGKILL)
        assert wait_for(lambda: not self.processes())

    def processes(self) -> dict[int, str]:
        """Everything that the agent has started and that still runs: command lines by process."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                environment = (entry / "environ").read_bytes().decode(errors="replace")
            except (OSError, ValueError):
                continue
            marked = f"EDGETLM_SESSION={self.home}" in environment
            if entry.name.isdigit() and words and (marked or f"serve --home {self.home}" in words):
                found[int(entry.name)] = words
        return found

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        self.command("stop")
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


OPEN = {"command": "session.open", "engine": "tvm", "threads": 1, "time_limit_s": 60}


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Waits until something is so; returns what it last was."""
    until = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def files_below(folder: Path) -> Iterator[Path]:
    """The folder itself and all that is in it."""
    yield folder
    yield from folder.rglob("*")


def as_nobody(imports: str, code: str, *arguments: str) -> str:
    """What a program of another user prints; where tests do not run as root it runs as this one.

    Args:
        imports: done before: another user may not be able to read the interpreter's library.
        code: run as the other user.
        arguments: of the program.
    """
    drop = f"os.geteuid() or (os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY}))"
    program = f"import os, sys, encodings.idna, encodings.latin_1\n{imports}\n{drop}\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rpc_answer(port: int, key: str) -> int:
    """First word of the answer to a handshake of TVM's RPC."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        text = f"client:{key}".encode()
        stranger.sendall(struct.pack("<ii", 0xFF271, len(text)) + text)
        return int(struct.unpack("<i", stranger.recv(4))[0])
