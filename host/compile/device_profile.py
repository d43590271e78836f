"""Which board a device is, and the profile that programs are made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from device_agent.contract.text import printable
from host.calibration import board_of, calibrated
from host.errors import UserError
from host.model import DeviceProfile
from targets import MachineDescription, declared

if TYPE_CHECKING:
    from host.transport import Device


def profile_of(device: Device, threads: int, note: Callable[[str], None] | None = None) -> DeviceProfile:
    """The profile of a connected device, with its calibrated figures where it was calibrated.

    Args:
        device: the device.
        threads: threads for the model; 0 takes all cores.
        note: receives a line on a calibration that is used, or why one is not.

    Raises:
        UserError: no board file describes this machine, or it has fewer cores than threads.
    """
    description = device.describe()
    profile = profile_for(description, device.name, threads)
    profile = replace(profile, memory_bytes=description.memory_bytes)
    hardware, remark = calibrated(device.name, description, profile.board)
    if remark and note is not None:
        note(remark)
    return replace(profile, hardware=hardware)


def target_profile(target: str, threads: int = 0, note: Callable[[str], None] | None = None) -> DeviceProfile:
    """The profile of a device that need not be there.

    Args:
        target: a name of `targets.declared()`, or "local" for this machine.
        threads: see `profile_of`.
        note: see `profile_of`.

    Raises:
        UserError: there is no such target, or it has fewer cores than threads.
    """
    from host.transport import connect

    if target == "local":
        with connect(target) as device:
            return profile_of(device, threads, note)
    return profile_for(machine_of(target), target, threads)


def machine_of(target: str) -> MachineDescription:
    """The machine that a target declares.

    Args:
        target: a name of `targets.declared()`.

    Raises:
        UserError: there is no such target.
    """
    machines = declared()
    if target not in machines:
        near = get_close_matches(target, ["local", *machines], n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UserError(f"no target {printable(repr(target))}{hint}: use local, {', '.join(machines)}")
    return machines[target]


def profile_for(description: MachineDescription, name: str, threads: int) -> DeviceProfile:
    """The profile of a described machine, as its board declares it; see `profile_of`."""
    board = board_of(description, name)
    if threads > description.cores:
        raise UserError(f"--threads {threads}: device {name} has {description.cores} cores")
    return DeviceProfile(
        device=name,
        board=board,
        hardware=board.hardware,
        threads=threads or description.cores,
        software=dict(description.software),
    )
