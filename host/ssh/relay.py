"""Ports of this machine that are forwarded to ports of a board by a separate process.

TVM's RPC client may wait for an answer while it has Python's interpreter lock (for example when a remote
object is freed). Threads of the same process could then never deliver the answer. The separate process has
its own SSH connection to the same endpoint, and ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import Any

from host.errors import DeviceError
from host.ssh.endpoint import Endpoint

_START_S = 60.0
_STOP_S = 10.0


class Relay:
    """The process, as its parent sees it.

    Args:
        name: of the device, for messages.
        endpoint: its SSH server.
    """

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "host.ssh.relay_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is the parent's to handle: closing ends this in order.
            start_new_session=True,
        )
        self._send({"name": name, "endpoint": _plain(endpoint)})

    def forward(self, port: int) -> int:
        """A port of this machine that is forwarded to a port of the board, for one connection by this user.

        Raises:
            DeviceError: the board does not answer.
        """
        with self._lock:
            self._send({"port": port})
            answer = self._answer()
        if "error" in answer:
            raise DeviceError(str(answer["error"]))
        return int(answer["port"])

    def _send(self, fields: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        # If it has ended, its answer is missing.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write((json.dumps(fields) + "\n").encode())
            self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            ready = selector.select(_START_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise DeviceError(f"{self._name}: no second SSH connection could be made; connect again")
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process and its connections; more than once is no error."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _plain(endpoint: Endpoint) -> dict[str, Any]:
    fields = asdict(endpoint)
    for name in ("identities", "known_hosts"):
        fields[name] = [str(path) for path in fields[name]]
    return fields
