"""Which board a device is, and the profile that programs are made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from device_agent.contract.text import printable
from host.calibration import board_of, calibrated
from host.errors import DeviceError, UserError
from host.model import DeviceProfile
from host.transport.replies import fields_of
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
    profile = replace(profile, hardware=hardware)
    known = profile.board.gpu_modes()
    present = [mode for mode in _present_modes(device) if mode in known] if known else []
    if present and note is not None:
        note(f"the GPU's estimate is that of power mode {present[0]}")
    return in_power_mode(profile, present[0]) if present else profile


def in_power_mode(profile: DeviceProfile, mode: str) -> DeviceProfile:
    """The profile with the board's GPU in a power mode.

    Raises:
        UserError: nothing is known of the GPU in that mode.
    """
    gpu = profile.board.gpu
    modes = profile.board.gpu_modes()
    if gpu is None or mode not in modes:
        known = f"use {', '.join(modes)}" if modes else "none is known"
        raise UserError(f"no power mode {printable(repr(mode))} of {profile.board.name}'s GPU: {known}")
    return replace(profile, board=replace(profile.board, gpu=gpu.in_mode(modes[mode])))


def _present_modes(device: Device) -> list[str]:
    """The names of the power modes that a board is in; none where its agent cannot tell."""
    try:
        reply = fields_of(device.name, device.request("modes.list"))
        return [one.name("name") for one in reply.objects("modes") if one.truth("current")]
    except DeviceError:
        return []


def target_profile(target: str, threads: int = 0, note: Callable[[str], None] | None = None) -> DeviceProfile:
    """The profile of a device that need not be there.

    Args:
        target: a name of `targets.declared()`, or "local" for this machine. "NAME@MODE" is the board with its
            GPU in a power mode.
        threads: see `profile_of`.
        note: see `profile_of`.

    Raises:
        UserError: there is no such target or power mode, or it has fewer cores than threads.
    """
    from host.transport import connect

    if target == "local":
        with connect(target) as device:
            return profile_of(device, threads, note)
    board, _, mode = target.partition("@")
    profile = profile_for(machine_of(board), board, threads)
    return in_power_mode(profile, mode) if mode else profile


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
