"""Joining a Ray cluster, or starting Ray on this machine alone, and leaving it again.

A process has one session at a time; after the end of one, it can open another.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.errors import UserError
from host.execution.cores import BOARD_CORES, divided
from host.execution.engine import PROCESSES, TOKEN_FILE, read_token
from host.options.engine import BOARD
from host.places import config_root

# Seconds that the head may take to answer a look.
LOOK_S = 2.0
# Seconds that a host may take to join.
_JOIN_S = 60.0
# How often Ray asks a head that refuses its token, a second each time; its own number is 20.
_ASKS = "8"

# Its messages are for those who write programs of Ray.
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}

# Variables that a session sets.
_SAID = (
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
    "RAY_NUM_REDIS_GET_RETRIES",
    "RAY_USAGE_STATS_ENABLED",
    *PROCESSES,
)


class RaySession:
    """What connects this process with a cluster; nothing before `open`.

    Args:
        address: HOST:PORT of a cluster's head; "" starts hosts of this machine alone, which listen
            on its loopback interface and end with this process.
        boards: that this machine reaches, where it is alone.

    Attributes:
        ray: the package.
        head: HOST:PORT of the head of the open session.

    Raises:
        UserError: Ray is not installed, or there is no token for the cluster.
    """

    def __init__(self, address: str, boards: Sequence[str]) -> None:
        self._address = address
        self._boards = boards
        self._own_node: subprocess.Popen[bytes] | None = None
        self._node = ""
        self.head = address
        # What a session sets in the environment is not for the next engine.
        self._environment = {name: os.environ.get(name) for name in _SAID}
        try:
            _prepare(_token() if address else secrets.token_hex(32))
            if not address:
                # Ray names it after other systems: the host's address is that of the loopback interface.
                os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            import ray
        except ImportError as error:
            self._restore()
            raise UserError(f"--engine ray: {error}; pip install 'edgetlm[ray]' adds it") from error
        self.ray = ray
        # What hosts report of each other goes to the command's errors otherwise, in pages that name no board;
        # no option of Ray's covers it. The engine reports the losses itself.
        ray._private.worker._worker_logs_enabled = False

    def open(self) -> None:
        """Join the cluster, or start this machine's hosts.

        Raises:
            ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError: that cannot be done.
        """
        if self._address:
            self._join()
        else:
            self._start()
        self.head = str(self.ray.get_runtime_context().gcs_address)
        self._node = str(self.ray._private.worker.global_worker.node.raylet_socket_name)

    def look(self) -> None:
        """See that the head and this machine's host are there.

        Another head may listen in place of the session's, of a cluster that knows nothing of this one. This
        machine's host ends then, as it does with its head.

        Raises:
            ConnectionRefusedError: one of them has ended.
            OSError: the head does not answer.
        """
        _reach(self.head)
        # No process listens any more where the host did.
        if self._node not in Path("/proc/net/unix").read_text(errors="replace").split():
            raise ConnectionRefusedError("this machine's host of the cluster has ended")

    def may_open(self) -> bool:
        """Whether something listens where the head is, or this machine starts its own."""
        try:
            if self._address:
                _reach(self._address)
        except OSError:
            return False
        return True

    def leave(self) -> None:
        """End the session; `open` opens another."""
        self.ray.shutdown()
        if self._own_node is not None:
            self._own_node.terminate()
            self._own_node.wait()
            self._own_node = None

    def close(self) -> None:
        """End the session, and forget what it set in the environment."""
        self.leave()
        self._restore()

    def _restore(self) -> None:
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _start(self) -> None:
        cores = frozenset(os.sched_getaffinity(0))
        builds, _ = divided(cores, int(os.environ.get(BOARD_CORES, "1")))
        self.ray.init(
            # Not a cluster that happens to run here.
            address="local",
            num_cpus=len(builds),
            resources={BOARD + name: 1.0 for name in self._boards},
            include_dashboard=False,
            **_QUIET,
        )

    def _join(self) -> None:
        """Join as a host that does no work, unless this machine is one of the cluster's."""
        _reach(self._address)
        try:
            self.ray.init(address=self._address, **_QUIET)
        except (RuntimeError, ValueError, ConnectionError):
            command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--address={self._address}"]
            command += ["--num-cpus=0", "--block", "--disable-usage-stats", "--include-log-monitor=false"]
            self._own_node = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            until = time.monotonic() + _JOIN_S
            while True:
                with contextlib.suppress(RuntimeError, ValueError, ConnectionError):
                    self.ray.init(address=self._address, **_QUIET)
                    return
                if time.monotonic() > until or self._own_node.poll() is not None:
                    raise
                time.sleep(1.0)


def _prepare(token: str) -> None:
    """What Ray reads from the environment when it is imported, here and in the processes that it starts."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", _ASKS)
    os.environ.update(PROCESSES)
    if token:
        os.environ["RAY_AUTH_TOKEN"] = token


def _token() -> str:
    """The secret of the user's cluster; "" where the environment has one."""
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return ""
    try:
        return read_token(config_root() / TOKEN_FILE)
    except (OSError, ValueError) as error:
        raise UserError(
            f"the cluster's token cannot be read ({printable(error, 200)}): sdk cluster up makes it, or copy "
            f"it to {config_root() / TOKEN_FILE} from the machine that did"
        ) from error


def _reach(address: str) -> None:
    """Raises OSError where nothing listens."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=LOOK_S).close()
