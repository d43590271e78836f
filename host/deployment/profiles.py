"""Which board a device is, and the profile that programs are made for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host.errors import UserError
from host.model import DeviceProfile
from targets import MachineDescription, board_for, board_names

if TYPE_CHECKING:
    from host.transport import Device


def profile_of(device: Device, threads: int) -> DeviceProfile:
    """The profile of a connected device.

    Args:
        device: the device.
        threads: threads for the model; 0 takes all cores.

    Raises:
        UserError: no board file describes this machine, or it has fewer cores than threads.
    """
    return profile_for(device.describe(), device.name, threads)


def profile_for(description: MachineDescription, name: str, threads: int) -> DeviceProfile:
    """The profile of a described machine; see `profile_of`."""
    board = board_for(description)
    if board is None:
        known = ", ".join(board_names())
        raise UserError(
            f"device {name} is a {description.machine}, which no board file describes (there is {known})"
        )
    if threads > description.cores:
        raise UserError(f"--threads {threads}: device {name} has {description.cores} cores")
    return DeviceProfile(
        device=name,
        board=board,
        hardware=board.hardware,
        threads=threads or description.cores,
        software=dict(description.software),
    )
