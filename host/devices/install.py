"""Putting the agent and its runtimes on a board: by the hash of their content, so that nothing is sent twice.

An archive grows under a temporary name, which a later run continues; the board verifies it, unpacks it beside
its place and renames it. Whatever breaks off, the board has what it had before or the new version whole.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from host.devices.answers import Answer, BoardStatus, status_of, unit_of
from host.devices.board_shell import order, shell
from host.errors import DeviceError, DeviceFull
from host.payload import Payload, agent_archive
from host.places import user_name
from host.ssh import SshConnection
from targets import Board

UNIT = "edgetlm-agent.service"
_SYSTEM_UNIT = f"/etc/systemd/system/{UNIT}"
_UNPACK_S = 600.0
_AGENT_COMMAND_S = 120.0
# A file of this size goes in one piece; SFTP acknowledges every piece unless they are pipelined.
_PIECE_BYTES = 1 << 18
# Space that unpacking takes in addition to the archive, at most, of what is sent.
_UNPACKED_SHARE = 5


def board_status(ssh: SshConnection, home: str = "") -> BoardStatus:
    """Ask a board what it has; its folder is made if need be.

    Args:
        ssh: connection to the board.
        home: the agent's folder, "" for the usual one.

    Raises:
        DeviceError: it has no usable Python, or the connection was cut.
    """
    return status_of(ssh.name, order(ssh, "status", home=home))


class Installer:
    """Installs on one board.

    Attributes:
        sent_bytes: what has been sent so far.
        status: what the board has, as of the last step.

    Args:
        ssh: connection to the board.
        home: the agent's folder on it, "" for the usual one.
        progress: receives the bytes that have arrived, and all bytes of an archive.
    """

    def __init__(
        self,
        ssh: SshConnection,
        home: str = "",
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._ssh = ssh
        self._progress = progress
        self.sent_bytes = 0
        self.status = board_status(ssh, home)

    def agent(self) -> bool:
        """Install this host's version of the agent and put it to use; False if it is in use already.

        Raises:
            DeviceFull: no space there.
            DeviceError: the connection was cut; the next run goes on.
        """
        archive = agent_archive()
        if self.status.agent == archive.sha256:
            return False
        if archive.sha256 not in self.status.agents:
            with tempfile.TemporaryFile() as file:
                file.write(archive.content)
                self._place(file, "agent", archive.sha256)
        self._order("apply", agent=archive.sha256)
        return True

    def payload(self, payload: Payload, board: Board) -> bool:
        """Install the runtime of an engine; False if it is there already.

        Args:
            payload: of the engine.
            board: the facts that the agent gets about its board.

        Raises:
            DeviceFull: no space there.
            DeviceError: the connection was cut; the next run goes on.
        """
        path = f"payloads/{payload.sha256}"
        entry = {"kind": payload.kind, "path": path}
        present = payload.sha256 in self.status.payloads
        if present and dict(self.status.serves.get(payload.engine, {})) == entry:
            return False
        if not present:
            with tempfile.TemporaryDirectory() as scratch:
                packed = Path(scratch) / "payload.tar.gz"
                payload.write_archive(packed)
                with packed.open("rb") as file:
                    self._place(file, "payloads", payload.sha256)
        serves = {**self.status.serves, payload.engine: entry}
        self._order("apply", files={"payloads.json": serves, "board.json": board.facts()})
        return True

    def unit(self) -> Mapping[str, Any]:
        """Have the board's systemd start the agent for this user; `reason` is why it does not."""
        if self.status.unit["system"] or not self.status.unit["available"]:
            return self.status.unit
        answer = order(self._ssh, "unit", home=self.status.home, text=self._unit_text(system=False))
        return unit_of(self._ssh.name, {"unit": answer})

    def system_unit(self, power_modes: bool = False) -> None:
        """Install the hardened unit of the whole system through sudo.

        Args:
            power_modes: let the agent change power modes.

        Raises:
            DeviceError: sudo asks for a password; the message has the command to type.
        """
        status = self.status
        script = f"{status.home}/install-system-unit"
        text = (
            f"set -e\ncat > {_SYSTEM_UNIT} <<'UNIT'\n"
            + self._unit_text(system=True, power_modes=power_modes).rstrip("\n")
            + f"\nUNIT\nsystemctl daemon-reload\nsystemctl enable {UNIT}\nsystemctl restart {UNIT}\n"
        )
        with self._ssh.sftp() as files:
            with files.open(script, "w") as file:
                file.write(text)
            files.chmod(script, 0o700)
        if not status.unit["system"]:
            # An agent that runs now was started by a host that connected; systemd's could not run beside it.
            run_agent(self._ssh, status, ["stop", "--home", status.home])
        as_root(self._ssh, f"sh {shlex.quote(script)}", "the system unit cannot be installed from here")
        self._refresh()

    def prune(self) -> int:
        """Remove versions that nothing uses any more; returns how many."""
        removed = Answer(self._ssh.name, order(self._ssh, "prune", home=self.status.home)).texts("removed")
        self._refresh()
        return len(removed)

    def _unit_text(self, system: bool, power_modes: bool = False) -> str:
        flags = [*(["--system"] if system else []), *(["--power-modes"] if power_modes else [])]
        words = ["unit", *flags, "--home", self.status.home]
        done = run_agent(self._ssh, self.status, words)
        if done.code:
            raise DeviceError(f"{self._ssh.name}: the agent has no service unit ({done.error_line()})")
        return str(done.stdout.decode("utf-8", "replace"))

    def _order(self, do: str, **arguments: Any) -> None:
        order(self._ssh, do, home=self.status.home, **arguments)
        self._refresh()

    def _refresh(self) -> None:
        self.status = board_status(self._ssh, self.status.home)

    def _place(self, archive: IO[bytes], into: str, digest: str) -> None:
        """Send an archive and have the board unpack it where it belongs."""
        name = f"{digest}.{_host_mark()}.part"
        size = archive.seek(0, 2)
        have = self.status.incoming.get(name, 0)
        if have > size:
            have = 0
        if self.status.free_bytes < (size - have) + _UNPACKED_SHARE * size:
            raise DeviceFull(
                f"{self._ssh.name}: {self.status.free_bytes / 1e6:.0f} MB are free in {self.status.home},"
                f" {(1 + _UNPACKED_SHARE) * size / 1e6:.0f} MB are needed; free some there and run the"
                " same command again"
            )
        self._send(archive, f"{self.status.home}/incoming/{name}", have, size)
        order(self._ssh, "unpack", _UNPACK_S, home=self.status.home, archive=name, into=into, sha256=digest)

    def _send(self, archive: IO[bytes], target: str, have: int, size: int) -> None:
        archive.seek(have)
        try:
            with self._ssh.sftp() as files, files.open(target, "ab" if have else "wb") as file:
                file.set_pipelined(True)
                self._progress(have, size)
                while piece := archive.read(_PIECE_BYTES):
                    file.write(piece)
                    self.sent_bytes += len(piece)
                    have += len(piece)
                    self._progress(have, size)
        except OSError as error:
            # Not the connection, which is a DeviceError; and SFTP has no word for a full disk but "Failure".
            raise DeviceFull(
                f"{self._ssh.name}: {target} cannot be written ({error}); is the board's disk full?"
                " free some there (df -h) and run the same command again"
            ) from error


def run_agent(
    ssh: SshConnection, status: BoardStatus, words: list[str], timeout_s: float = _AGENT_COMMAND_S
) -> Any:
    """Run a command of the installed agent on the board."""
    script = 'cd "$1/agent/current" && shift && exec "$@"'
    return ssh.run(
        shell(script, status.home, status.python, "-m", "device_agent", *words), timeout_s=timeout_s
    )


def as_root(ssh: SshConnection, command: str, failure: str) -> None:
    """Run a command of the board's shell as root, without anybody to type a password.

    Raises:
        DeviceError: it fails; the message has the command to type.
    """
    done = ssh.run(
        shell(f'if [ "$(id -u)" = 0 ]; then {command}; else sudo -n {command}; fi'),
        timeout_s=_AGENT_COMMAND_S,
    )
    if done.code:
        raise DeviceError(
            f"{ssh.name}: {failure} ({done.error_line()}); type:"
            f" ssh -t {ssh.endpoint.address} {shlex.quote('sudo ' + command)}"
        )


def remove_from_board(ssh: SshConnection, home: str = "", purge: bool = False) -> list[str]:
    """End the agent and remove it from a board.

    Args:
        ssh: connection to the board.
        home: the agent's folder, "" for the usual one.
        purge: remove installed bundles too.

    Returns:
        What was removed.

    Raises:
        DeviceError: something cannot be removed.
    """
    removed = []
    if board_status(ssh, home).unit["system"]:
        command = f"sh -c 'systemctl disable --now {UNIT}; rm -f {_SYSTEM_UNIT}; systemctl daemon-reload'"
        as_root(ssh, command, "the system unit cannot be removed from here")
        removed.append(_SYSTEM_UNIT)
    answer = Answer(ssh.name, order(ssh, "remove", home=home, purge=purge))
    return [*removed, *answer.texts("removed")]


def _host_mark() -> str:
    """Part of an archive's name, so that hosts that send at the same time use different files."""
    return hashlib.sha256(json.dumps([socket.gethostname(), user_name()]).encode()).hexdigest()[:8]
