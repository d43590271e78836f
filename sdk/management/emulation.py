"""Making the user's emulated devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdk.management.administration import AddRequest, Progress, add, devices_folder

if TYPE_CHECKING:
    from host.devices import DeviceEntry
    from host.emulation.machine import Machine
    from host.transport.installing import Installed


@dataclass(frozen=True)
class EmulateRequest:
    """A device to make.

    Attributes:
        architecture: "aarch64" or "riscv64".
        name: that the user gives it, "" for one of the architecture's.
        board: to emulate, "" for the architecture's generic board.
        vector_bits: length of RISC-V vectors.
        tags: names of groups that the device belongs to.
    """

    architecture: str
    name: str = ""
    board: str = ""
    vector_bits: int = 256
    tags: tuple[str, ...] = ()

    @property
    def machine_name(self) -> str:
        """Name of a whole machine."""
        return self.name or "emulated-machine"


def emulate(request: EmulateRequest, progress: Progress) -> DeviceEntry:
    """Make a device of qemu's user mode and register it; an existing one of this name is updated.

    Raises:
        UserError: it cannot be emulated, or another device has this name.
        DeviceError: its files cannot be made.
    """
    from host.devices import DeviceEntry, Registry
    from host.devices.entry import checked
    from host.emulation.processors import emulated_board, processor
    from host.emulation.user import create
    from host.errors import UserError

    board = emulated_board(request.architecture, request.board)
    # Its system is made for minutes; a length that cannot be is refused before.
    processor(board.name, request.vector_bits)
    name = request.name or f"emulated-{request.architecture}"
    folder = devices_folder() / name
    options = {"folder": str(folder), "architecture": request.architecture}
    entry = checked(DeviceEntry(name, "emulated", board=board.name, tags=request.tags, options=options))
    known = Registry().entries().get(name)
    if known is not None and known.kind != "emulated":
        raise UserError(f"there is a device {name} already; choose another name with --name")
    progress.stage("system")
    create(folder, board, request.vector_bits)
    Registry().add(entry, overwrite=True)
    return entry


def start_machine(request: EmulateRequest, progress: Progress) -> Machine:
    """Start a whole machine, bare, and wait until its SSH server answers.

    Raises:
        UserError: a program is missing, or there is no such processor.
        DeviceError: it does not start.
    """
    from host.emulation import machine
    from host.emulation.processors import emulated_board, processor

    board = emulated_board(request.architecture, request.board)
    qemu = processor(board.name, request.vector_bits)
    progress.stage("boot")
    return machine.start(devices_folder() / request.machine_name, request.architecture, qemu)


def emulate_machine(
    request: EmulateRequest, progress: Progress
) -> tuple[Machine, tuple[DeviceEntry, Installed | None] | None]:
    """Start a whole machine and add it like a board; a machine that is registered already is only started.

    Returns:
        The machine, and what adding it gave; None where it was registered.

    Raises:
        UserError: there is no such processor, or the name is taken.
        DeviceError: the machine does not start, or the agent cannot be installed.
    """
    from host.devices import Registry
    from host.errors import UserError

    name = request.machine_name
    folder = devices_folder() / name
    known = Registry().entries().get(name)
    if known is not None and known.options.get("machine") != str(folder):
        raise UserError(f"there is a device {name} already; choose another name with --name")
    machine = start_machine(request, progress)
    address = f"{machine.user}@127.0.0.1:{machine.port}"
    if known is not None and known.address == address:
        return machine, None
    if known is not None:
        Registry().remove(name)
    added = add(
        AddRequest(
            name,
            address,
            request.board,
            request.tags,
            str(machine.identity),
            str(machine.known_hosts),
        ),
        progress,
    )
    return machine, added
