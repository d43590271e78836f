"""From a bare board with SSH to one that runs models: agent, runtime, service, and which board it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from host.devices import DeviceEntry, Registry
from host.devices.install import Installer
from host.errors import DeviceError, UserError
from host.keys import host_key
from host.transport.ssh import SshAgent, connect_ssh, required_board, ssh_connection_to
from targets import Board, MachineDescription, board_names


@dataclass(frozen=True)
class Installed:
    """The result of an installation.

    Attributes:
        entry: of the device, with its board.
        machine: what its agent says of it.
        board: that it is.
        sent_bytes: that were sent; 0 where everything was there.
        removed: versions that nothing used any more.
        unit: state of the service: `available`, `enabled`, `linger`, `system`, `reason`.
    """

    entry: DeviceEntry
    machine: MachineDescription
    board: Board
    sent_bytes: int
    removed: int
    unit: Mapping[str, Any]


def install_agent(
    entry: DeviceEntry,
    system: bool = False,
    power_modes: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    stage: Callable[[str], None] = lambda name: None,
) -> Installed:
    """Install the agent and the runtime of compiled models on a board, or bring them up to date.

    A second time nothing is sent. After a cut the next run goes on where this one was.

    Args:
        entry: of the device, which need not be registered.
        system: as a hardened service of the whole system, through sudo.
        power_modes: let that service change power modes.
        progress: receives the bytes that have arrived, and all bytes that are being sent.
        stage: receives each stage's name.

    Raises:
        DeviceError: the board does not answer, or cannot run the agent.
        EngineError: no runtime can be made for it.
    """
    stage("connect")
    ssh = ssh_connection_to(entry)
    try:
        stage("agent")
        installer = Installer(ssh, entry.options.get("home", ""), progress)
        installer.agent()
        if system:
            installer.system_unit(power_modes)
        unit = installer.unit()
        device = connect_ssh(entry, ssh)
    except BaseException:
        ssh.close()
        raise
    with device:
        stage("runtime")
        agent = device.agent
        assert isinstance(agent, SshAgent)
        agent.use(installer)
        # Whoever adds a board wants to deploy to it; a key that was revoked there stays so.
        device.enrol(host_key())
        machine = device.describe()
        board = required_board(entry.name, machine)
        agent.provide("tvm", device.describe)
        removed = installer.prune()
        return Installed(
            replace(entry, board=board.name), machine, board, installer.sent_bytes, removed, unit
        )


def add_device(entry: DeviceEntry, installed: Installed | None) -> DeviceEntry:
    """Register a device, recognised if it has been installed.

    Raises:
        UserError: there is one of this name.
    """
    found = installed.entry if installed is not None else entry
    Registry().add(found)
    return found


def check_new(entry: DeviceEntry) -> None:
    """See that a device can be registered before anything is done to it.

    Raises:
        UserError: there is one of this name, or no board is called so.
    """
    if entry.name in Registry().entries():
        raise UserError(
            f"there is a device {entry.name} already; to bring its agent up to date: sdk devices"
            " install-agent"
            f" {entry.name}; to give the name to another: sdk devices remove {entry.name}"
        )
    board = entry.options.get("board", "")
    if board and board not in board_names():
        raise UserError(f"no board is called {board!r}; use one of: {', '.join(board_names())}")


def ssh_entry(name: str) -> DeviceEntry:
    """A registered device that is reached over SSH.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it is of another kind.
    """
    entry = Registry().get(name)
    if entry.kind != "ssh":
        raise DeviceError(
            f"{name} is {entry.kind}, not a board reached over SSH; there is nothing to install on it"
        )
    return entry
