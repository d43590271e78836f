"""The agent's folder on a board, private to its user.

agent/HASH/device_agent/...   the agent's own files; `agent/current` links to the version in use
payloads/HASH/...             runtimes; payloads.json says which runtime serves which engine
board.json                    the board as the host resolved it
device/                       bundles, uploads, sessions' files
device/agent.json             the running agent: pid, port, start time, folder, code
device/agent.lock             locked by the running agent, so the lock is free when the agent is gone
device/run/PID/               files of one agent process, which locks the file `lock` in the folder
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from typing import Any, Callable, Dict, Optional

from device_agent.errors import AgentError
from device_agent.store.private_files import is_held, locked, private_folder, try_lock


def default_root() -> str:
    """EDGETLM_HOME, or `edgetlm` in XDG_DATA_HOME (~/.local/share)."""
    if os.environ.get("EDGETLM_HOME"):
        return os.path.abspath(os.environ["EDGETLM_HOME"])
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    if not os.path.isabs(base):
        # `~` stays where the system does not know the user.
        raise AgentError(
            "bad_request",
            "user %d has no home: set EDGETLM_HOME to a folder that this user may write" % os.geteuid(),
        )
    return os.path.join(base, "edgetlm")


class AgentFolder:
    """Paths in the agent's folder.

    Args:
        root: the folder.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.device = os.path.join(self.root, "device")
        self.record = os.path.join(self.device, "agent.json")
        self.lock = os.path.join(self.device, "agent.lock")
        self.log = os.path.join(self.device, "agent.log")
        self.payloads = os.path.join(self.root, "payloads.json")
        self.board = os.path.join(self.root, "board.json")

    def make(self) -> None:
        """Creates the folders, private to this user.

        Raises:
            AgentError: another user owns one of the folders.
            OSError: a folder cannot be created.
        """
        private_folder(self.root)
        private_folder(self.device)

    def running(self) -> Optional[Dict[str, Any]]:
        """The content of `agent.json`; None if no agent is running."""
        with contextlib.suppress(FileNotFoundError):
            if is_held(self.lock):
                with open(self.record, encoding="utf-8") as file:
                    return dict(json.load(file))
        return None


class RunFolder:
    """The files of this agent process, which are removed when it ends.

    At the start, the folders that killed agents left behind are removed first.

    Args:
        device: the folder `device`, or a bundle store.
        recover: called with each folder that a killed agent left behind, before the folder is removed. If it
            returns False, the folder is kept for the next start.
    """

    def __init__(self, device: str, recover: Callable[[str], bool] = lambda _: True) -> None:
        self._base = os.path.join(device, "run")
        self._cleaning = os.path.join(device, "run.lock")
        self._recover = recover
        private_folder(self._base)
        self.path = os.path.join(self._base, str(os.getpid()))
        with locked(self._cleaning):
            self._clear()
            if os.path.exists(self.path):  # kept by `recover`, from an earlier process with the same id
                os.rename(self.path, "%s.%s" % (self.path, secrets.token_hex(4)))
            os.mkdir(self.path, 0o700)
            self._lock = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def clear(self) -> None:
        """Removes the folders of agents that have been killed since."""
        with locked(self._cleaning):
            self._clear()

    def _clear(self) -> None:
        for entry in sorted(os.listdir(self._base)):
            folder = os.path.join(self._base, entry)
            with try_lock(os.path.join(folder, "lock")) as free:
                if free and self._recover(folder):
                    shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """Removes the folder. It is no error to call this again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
