"""A Ray cluster of several hosts on this machine, any of which a test can kill."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from host.cluster.hosts import TOO_SLOW
from host.cluster.node import RETRIES, start_command, start_environment

ROOT = Path(__file__).resolve().parents[1]
# Of the loopback interface: Ray takes 127.0.0.1 for a name of the machine's other address.
ADDRESS = "127.0.0.2"
_START_S = 300.0
# Small hosts: nothing of a test is large.
_STORE_BYTES = 100 << 20


class RayCluster:
    """Hosts of a cluster, which are processes of this machine; ended with `close`.

    Args:
        folder: for what they say.
        boards: that each host reaches; the first host is the head.
        cores: for builds, of each host.
        first_cores: the same of the head.

    Attributes:
        environment: of commands that use the cluster.
        engine: its name for `--engine`.
    """

    def __init__(
        self, folder: Path, boards: Sequence[Sequence[str]], cores: int = 1, first_cores: int = 1
    ) -> None:
        self._folder = folder
        self._boards = boards
        self._cores = (first_cores, *[cores] * (len(boards) - 1))
        self._made: list[str] = []
        self._hosts: list[subprocess.Popen[bytes] | None] = [None] * len(boards)
        with socket.create_server((ADDRESS, 0)) as free:
            self._port = free.getsockname()[1]
        self.engine = f"ray://{ADDRESS}:{self._port}"
        own = {"PYTHONPATH": str(ROOT)}
        self._environment = {**os.environ, **start_environment(secrets.token_hex(32)), **own}
        # A command that a head refuses is not to ask for as long as a host that waits for one.
        self.environment = {name: value for name, value in self._environment.items() if name != RETRIES}
        try:
            self.start(*range(len(boards)))
        except BaseException:
            self.close()
            raise

    def start(self, *numbers: int) -> None:
        """Start hosts at once, of which each waits for the head, and wait until they run."""
        for number in numbers:
            self._begin(number)
        for number in numbers:
            self._await(number)

    def _begin(self, number: int) -> None:
        head = f"{ADDRESS}:{self._port}" if number else ""
        command = start_command(
            sys.executable,
            self._boards[number],
            self._cores[number],
            head,
            self._port,
            ADDRESS,
            store_bytes=_STORE_BYTES,
            temporary=self._temporary(),
        )
        with self._log(number).open("wb") as log:
            self._hosts[number] = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT
            )

    def _temporary(self) -> str:
        """A new folder; its name is short, as that of a socket has to be."""
        self._made.append(tempfile.mkdtemp(prefix="edgetlm-", dir="/tmp"))
        return self._made[-1]

    def kill(self, number: int) -> None:
        """Kill a host with everything that it has started, as a power cut does."""
        host = self._hosts[number]
        assert host is not None
        with suppress(psutil.NoSuchProcess):
            _kill(psutil.Process(host.pid))
        host.wait()
        self._hosts[number] = None

    def kill_one(self, named: str) -> int:
        """Kill one process that does a kind of work; returns how many there were.

        Args:
            named: part of its title: "ray::Hosted" for a board's, "ray::run_job" for one that builds.
        """
        found = [one for one in self._processes() if named in _title(one)]
        if found:
            found[0].send_signal(signal.SIGKILL)
        return len(found)

    def close(self) -> None:
        """Kill every host."""
        for number in reversed(range(len(self._hosts))):
            if self._hosts[number] is not None:
                self.kill(number)
        for folder in self._made:
            shutil.rmtree(folder, ignore_errors=True)

    def _processes(self) -> Iterator[psutil.Process]:
        for host in self._hosts:
            if host is not None:
                with suppress(psutil.NoSuchProcess):
                    yield from psutil.Process(host.pid).children(recursive=True)

    def _log(self, number: int) -> Path:
        return self._folder / f"host-{number}.log"

    def _await(self, number: int) -> None:
        host = self._hosts[number]
        assert host is not None
        until = time.monotonic() + _START_S
        while "Ray runtime started" not in (said := self._log(number).read_text(errors="replace")):
            ended, late = host.poll() is not None, time.monotonic() > until
            if not ended and not late and _raylet_ended(host.pid):
                # Ray asks the head for this host for four more minutes.
                self.kill(number)
                ended, said = True, TOO_SLOW
            if ended and not late and TOO_SLOW in said:
                self._begin(number)
                host = self._hosts[number]
                assert host is not None
            elif ended or late:
                raise RuntimeError(f"a host of the cluster does not start: {said[-2000:]}")
            time.sleep(0.1)


def _raylet_ended(pid: int) -> bool:
    """Whether a host that starts has lost its raylet, which gives its agent 15 s and no option for more."""
    with suppress(psutil.NoSuchProcess):
        some = psutil.Process(pid).children()
        return any(one.name() == "raylet" and one.status() == psutil.STATUS_ZOMBIE for one in some)
    return False


def _title(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        # Nothing may start another one meanwhile.
        process.suspend()
        children = process.children(recursive=True)
        for one in (process, *children):
            with suppress(psutil.NoSuchProcess):
                one.kill()
