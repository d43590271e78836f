"""Adding, examining and removing the user's devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from host.devices import DeviceEntry
    from host.transport.doctor import Finding
    from host.transport.installing import Installed


class Progress(Protocol):
    """Receives the progress of an installation."""

    def stage(self, name: str) -> None:
        """Called when a new stage begins."""

    def advance(self, done: int, total: int) -> None:
        """Called with the finished part of the stage."""


@dataclass(frozen=True)
class AddRequest:
    """A board to add.

    Attributes:
        name: that the user gives it.
        address: user@address:port; user and port may be missing.
        board: kind of board, "" to recognise the machine.
        tags: names of groups that the device belongs to.
        identity: private key file, "" for those of the SSH configuration.
        known_hosts: file of host keys for this board alone, "" for those of the SSH configuration.
        install: whether to install the agent.
        system: whether the agent is a hardened service of the whole system.
    """

    name: str
    address: str
    board: str = ""
    tags: tuple[str, ...] = ()
    identity: str = ""
    known_hosts: str = ""
    install: bool = True
    system: bool = False


def add(request: AddRequest, progress: Progress) -> tuple[DeviceEntry, Installed | None]:
    """Add a board: reach it, install the agent, recognise it, and register it.

    Raises:
        UserError: the name, the address or the board is invalid.
        DeviceError: the board does not answer, or cannot run the agent; nothing is registered, and the same
            command continues from there.
    """
    from host.devices import DeviceEntry, Registry
    from host.devices.entry import checked, parse_address
    from host.transport.installing import check_new, install_agent
    from host.transport.ssh import ssh_connection_to

    user, host, port = parse_address(request.address)
    options = {
        "identity": request.identity,
        "known_hosts": request.known_hosts,
        "machine": _machine_of(request.name, host, port),
        "board": request.board,
    }
    entry = checked(
        DeviceEntry(
            request.name,
            "ssh",
            host,
            user,
            port,
            board=request.board,
            tags=tuple(dict.fromkeys(request.tags)),
            options={name: value for name, value in options.items() if value},
        )
    )
    check_new(entry)
    if not request.install:
        progress.stage("connect")
        ssh_connection_to(entry).close()
        Registry().add(entry)
        return entry, None
    installed = install_agent(entry, request.system, progress=progress.advance, stage=progress.stage)
    Registry().add(installed.entry)
    return installed.entry, installed


def install(name: str, progress: Progress, system: bool = False, power_modes: bool = False) -> Installed:
    """Install the agent on a registered board, or bring it up to date.

    Args:
        name: of the device.
        progress: receives stages and the bytes sent.
        system: whether the agent is a hardened service of the whole system.
        power_modes: let that service change power modes.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer, cannot run the agent, or is not reached over SSH.
    """
    from host.devices import Registry
    from host.transport.installing import install_agent, ssh_entry

    installed = install_agent(
        ssh_entry(name), system or power_modes, power_modes, progress.advance, progress.stage
    )
    Registry().set_board(name, installed.board.name)
    return installed


def remove(name: str, purge: bool = False, forget: bool = False) -> list[str]:
    """Remove the agent from a board and the board from the registry.

    Args:
        name: of the device.
        purge: remove the bundles installed there too.
        forget: leave the board as it is; for one that does not answer any more.

    Returns:
        What was removed on the board.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer; it stays registered.
    """
    from host.devices import Registry
    from host.devices.install import remove_from_board
    from host.errors import DeviceError
    from host.transport.ssh import ssh_connection_to

    entry = Registry().get(name)
    removed: list[str] = []
    # A machine that is off has nothing installed any more.
    if entry.kind == "ssh" and not forget and not _is_off(entry):
        try:
            with ssh_connection_to(entry) as link:
                removed = remove_from_board(link, entry.options.get("home", ""), purge)
        except DeviceError as error:
            raise DeviceError(
                f"{error}; to forget it all the same: sdk devices remove {name} --forget"
            ) from error
    Registry().remove(name)
    return [*removed, *_remove_emulated(entry)]


def devices_folder() -> Path:
    """The folder of emulated devices: `edgetlm/emulated` below XDG_DATA_HOME."""
    from host.places import data_root

    return data_root() / "emulated"


def _machine_of(name: str, host: str, port: int) -> str:
    """Folder of the emulated machine that answers at an address, "" for a board."""
    from host.emulation.machine import ADDRESS, running

    folder = devices_folder() / name
    machine = running(folder)
    return str(folder) if machine and (host, port) == (ADDRESS, machine.port) else ""


def _is_off(entry: DeviceEntry) -> bool:
    from host.emulation.machine import running

    return "machine" in entry.options and running(Path(entry.options["machine"])) is None


def _remove_emulated(entry: DeviceEntry) -> list[str]:
    """Files of an emulated device, and its machine switched off; nothing for a board."""
    import shutil

    from host.emulation.machine import stop

    folder = entry.options.get("machine") or (entry.kind == "emulated" and entry.options.get("folder"))
    if not folder:
        return []
    stop(Path(folder))
    shutil.rmtree(folder, ignore_errors=True)
    return [folder]


def doctor(name: str, show: Callable[[Finding], None]) -> bool:
    """Examine a device; report each finding and return whether nothing is missing.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: a device that is not reached over SSH does not answer.
    """
    from host.devices import Registry
    from host.transport import connect_entry
    from host.transport.doctor import examine_board, examine_device

    entry = Registry().find(name)
    if entry.kind == "ssh":
        findings = examine_board(entry)
    else:
        with connect_entry(entry) as device:
            findings = list(examine_device(device))
    for finding in findings:
        show(finding)
    return all(finding.good or not finding.advice for finding in findings)
