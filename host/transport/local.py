"""This machine as a device: its agent is started as a child, and ends with the host whatever happens."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import secrets
import selectors
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

from host.closing import end_process
from host.errors import DeviceError, DeviceFull, EdgeError
from host.places import data_root
from host.transport.agent import OnThisMachine
from host.transport.device import Device, enrolled
from host.transport.wire import Connection

_START_S = 30.0
_STOP_S = 10.0
_DYING_S = 2.0
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def default_store() -> Path:
    """Folder of this machine's bundles: EDGETLM_STORE, or below XDG_DATA_HOME."""
    if "EDGETLM_STORE" in os.environ:
        return Path(os.environ["EDGETLM_STORE"])
    return data_root() / "device"


def linked_agent(folder: Path) -> None:
    """Put the agent's package into an empty folder, in which Python finds it and nothing else of ours.

    Raises:
        DeviceError: there is no such package.
    """
    spec = importlib.util.find_spec("device_agent")
    if spec is None or not spec.submodule_search_locations:
        raise DeviceError(
            "local: the package device_agent is not installed; install the complete package edgetlm"
        )
    # The link is all that the agent finds of ours, and the folder all that it could find by accident.
    (folder / "device_agent").symlink_to(Path(next(iter(spec.submodule_search_locations))).resolve())


class LocalAgent(OnThisMachine):
    """The agent as a child process, and its private folder.

    Attributes:
        process: the child.
        port: where it listens, on the loopback interface.
        token: its secret.
        log: file that its messages go to.

    Args:
        store: folder of its bundles.
        log: for its messages; a temporary file by default.
        system_root: prefix of /proc and /sys as the agent reads them.
        python: what starts executors.

    Raises:
        DeviceError: it does not start.
    """

    def __init__(
        self, store: Path, log: Path | None, system_root: Path, python: Path = Path(sys.executable)
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="edgetlm-"))
        self.log = log or self.folder / "agent.log"
        self.token = secrets.token_hex(32)
        token_file = self.folder / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(self.token)
        code = self.folder / "agent"
        code.mkdir()
        linked_agent(code)
        command = [sys.executable, "-m", "device_agent", "serve", "--token-file", str(token_file)]
        command += ["--store", str(store.absolute()), "--parent-pid", str(os.getpid())]
        command += ["--system-root", str(system_root), "--python", str(python)]
        with self.log.open("ab") as log_file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log_file,
                cwd=code,
                # Ctrl-C is the host's to handle: it closes the device, which ends the agent in order.
                start_new_session=True,
            )
        self.port = self._await_port()
        token_file.unlink()

    def _await_port(self) -> int:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(_START_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            reason = self.end_reason() or f"said nothing for {_START_S:.0f} s"
            self.stop()
            raise DeviceError(
                f"local: the device agent did not start ({reason}); set EDGETLM_STORE to a folder that can be"
                " written to"
            )
        return int(json.loads(line)["port"])

    def end_reason(self) -> str:
        """The last line that the agent wrote, with how it ended if it did."""
        # A dying process closes its connections before it is gone.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_DYING_S)
        code = self.process.returncode
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        ended = (
            []
            if code is None
            else [f"it ended by signal {-code}" if code < 0 else f"it ended with code {code}"]
        )
        return "; ".join([*ended, *lines[-1:]])

    def stop(self) -> None:
        """End the agent, which ends its executors, and remove the folder; more than once is no error."""
        end_process(self.process, _STOP_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def connect_local(
    store_dir: Path | None = None,
    log: Path | None = None,
    share_files: bool = True,
    system_root: Path = Path("/"),
) -> Device:
    """Start this machine's agent and connect to it.

    Args:
        store_dir: folder of its bundles; `default_store` by default.
        log: where the agent's messages go; a temporary file by default.
        share_files: let sessions read models where they lie; otherwise they are sent as to a board.
        system_root: prefix of /proc and /sys as the agent reads them, for tests of sensors.

    Raises:
        DeviceError: the agent does not start.
        DeviceFull: no space for its folders.
    """
    store = store_dir or default_store()
    try:
        agent = LocalAgent(store, log, system_root)
    except OSError as error:
        kind = DeviceFull if error.errno in _NO_SPACE else DeviceError
        raise kind(
            f"local: the device agent cannot be started: {error}; free some space or set TMPDIR"
        ) from error
    try:
        connection = Connection(agent.port, agent.token, "local")
    except EdgeError:
        agent.stop()
        raise
    # A device that was not closed is dropped, at the latest when the interpreter ends.
    weakref.finalize(connection, agent.stop)
    return enrolled(Device("local", connection, share_files, agent))
