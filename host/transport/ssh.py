"""A board reached over SSH: its agent listens on the board's loopback interface only, behind a ticket."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable

from device_agent.contract.manifest import OF_THE_BOARD
from host.devices import DeviceEntry
from host.devices.board_shell import shell
from host.devices.install import Installer
from host.devices.notes import note
from host.errors import DeviceError, EdgeError, EngineError
from host.payload import PayloadError, agent_archive, payload_for
from host.ssh import SshConnection
from host.transport.device import Device
from host.transport.ticket import Ticket, ticket_of
from host.transport.wire import Connection, Stream
from targets import Board, MachineDescription, board_for

_TICKET_S = 120.0
_NOT_INSTALLED, _OTHER_VERSION = 97, 98
_HOME = "${1:-${EDGETLM_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/edgetlm}}"
# One round trip: is the agent there, is it this host's version, and a ticket for it.
_TICKET = (
    f'h="{_HOME}"; c=$(readlink "$h/agent/current") || exit {_NOT_INSTALLED};'
    f' [ "$c" = "$2" ] || exit {_OTHER_VERSION}; p=$(cat "$h/agent/python") && cd "$h/agent/current"'
    ' && exec "$p" -m device_agent ticket --home "$h"'
)
_LAST_LINE = f'tail -n 1 "{_HOME}/device/agent.log"'


class SshAgent:
    """The agent of a board, and the connection that leads to it.

    Args:
        entry: of the device.
        ssh: connection to the board.
    """

    def __init__(self, entry: DeviceEntry, ssh: SshConnection) -> None:
        self.entry = entry
        self.ssh = ssh
        self._installer: Installer | None = None
        self._provided: set[str] = set()
        # Sessions are opened in several threads; an installation reads what the board has and adds to it.
        self._providing = threading.Lock()

    @property
    def home(self) -> str:
        """The agent's folder on the board as the user named it, "" for the usual one."""
        return self.entry.options.get("home", "")

    def dial(self, port: int) -> Stream:
        """Connect to a port of the board's loopback interface; OSError where nothing answers."""
        return self.ssh.dial(port)

    def forward(self, port: int) -> int:
        """A port of this machine that leads to one of the board, for one connection."""
        return self.ssh.forward(port)

    def ticket(self) -> Ticket:
        """A ticket for one connection to the board's agent, which is started if need be.

        An agent of another version than this host's is replaced first.

        Raises:
            DeviceError: none is installed, it does not start, or another host uses one of another version.
        """
        command = shell(_TICKET, self.home, agent_archive().sha256)
        done = self.ssh.run(command, timeout_s=_TICKET_S)
        if done.code == _OTHER_VERSION:
            self.installer().agent()
            done = self.ssh.run(command, timeout_s=_TICKET_S)
            if done.code == 0:
                # The old one has ended now, and its files are not used any more.
                self.installer().prune()
                note(f"{self.entry.name}: its agent was of another version and has been replaced")
        name = self.entry.name
        if done.code == _NOT_INSTALLED:
            raise DeviceError(f"{name}: no agent is installed there; type: sdk devices install-agent {name}")
        if done.code:
            raise DeviceError(
                f"{name}: the agent gives no ticket ({done.error_line()}); see what is missing:"
                f" sdk devices doctor {name}"
            )
        return ticket_of(name, done.stdout)

    def installer(self) -> Installer:
        """The installer for this board, over the same connection."""
        if self._installer is None:
            self._installer = Installer(self.ssh, self.home)
        return self._installer

    def use(self, installer: Installer) -> None:
        """Use this installer from now on."""
        self._installer = installer

    def provide(self, engine: str, describe: Callable[[], MachineDescription]) -> None:
        """Install an engine's files on the board, as this host has them; they are sent if they are not there.

        Raises:
            EngineError: there is none for this board, with the reason.
            DeviceFull: no space there.
        """
        if engine in OF_THE_BOARD:
            return
        with self._providing:
            if engine not in self._provided:
                self._install(engine, describe)
                self._provided.add(engine)

    def _install(self, engine: str, describe: Callable[[], MachineDescription]) -> None:
        description = describe()
        try:
            board = required_board(self.entry.name, description)
            payload = payload_for(description, board, engine)
        except PayloadError as error:
            raise EngineError(f"{self.entry.name}: {error}") from error
        installer = self.installer()
        if installer.payload(payload, board):
            note(f"{self.entry.name}: sent what runs {engine}, {payload.size_bytes / 1e6:.1f} MB")
            installer.prune()

    def end_reason(self) -> str:
        """Why the connection ended, or the last line of the agent's log."""
        words = self.ssh.end_reason()
        if not words:
            with contextlib.suppress(DeviceError):
                done = self.ssh.run(shell(_LAST_LINE, self.home), timeout_s=10.0)
                words = done.stdout.decode("utf-8", "replace").strip() if done.code == 0 else ""
        return words

    def stop(self) -> None:
        """End the connection; the agent stays."""
        self.ssh.close()


def required_board(name: str, description: MachineDescription) -> Board:
    """The board that a machine is.

    Raises:
        DeviceError: none is like it.
    """
    board = board_for(description)
    if board is None:
        raise DeviceError(
            f"{name}: no board is like this machine ({description.cpu_name}, {description.machine});"
            " describe it in"
            " a TOML file (docs/devices.md) and give its name with --board"
        )
    return board


def ssh_connection_to(entry: DeviceEntry) -> SshConnection:
    """Connect to a board's SSH server.

    Raises:
        DeviceError: it does not answer, its host key is unknown, or it refuses the user's keys.
    """
    identity, known_hosts = (entry.options.get(name, "") for name in ("identity", "known_hosts"))
    return SshConnection.to(entry.name, entry.host, entry.user, entry.port, identity, known_hosts)


def connect_ssh(entry: DeviceEntry, ssh: SshConnection | None = None) -> Device:
    """Connect to a board's agent.

    Args:
        entry: of the device.
        ssh: a connection to use, which the device closes; a new one by default.

    Raises:
        DeviceError: the board does not answer, its agent is missing or does not start.
    """
    ssh = ssh or ssh_connection_to(entry)
    try:
        agent = SshAgent(entry, ssh)
        ticket = agent.ticket()
        connection = Connection(ticket.port, ticket.token, entry.name, agent.dial)
    except EdgeError:
        ssh.close()
        raise
    # A device that was not closed is dropped, at the latest when the interpreter ends.
    weakref.finalize(connection, ssh.close)
    device = Device(entry.name, connection, False, agent, board=entry.options.get("board", ""))
    # What every host sees of this board, whatever its users call it.
    device.place = f"ssh {ssh.host_key}"
    return device
