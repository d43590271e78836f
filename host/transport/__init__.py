"""How the host reaches a device: one module a transport, all of which give a `Device`."""

from __future__ import annotations

import platform
from pathlib import Path

from device_agent.contract.text import printable
from host.devices import DeviceEntry, Registry
from host.errors import DeviceError
from host.extensions import extensions
from host.model import BOARD
from host.transport.device import Device
from host.transport.session import KernelOutputs, KernelTime, Session

__all__ = ["Device", "KernelOutputs", "KernelTime", "Session", "connect", "connect_entry", "device_names"]


def device_names() -> tuple[str, ...]:
    """Names of the devices that `connect` takes: this machine and the registered ones.

    Raises:
        UserError: the file of the user's devices cannot be used.
    """
    return ("local", *Registry().entries())


def connect(device_name: str, wait_s: float = 0.0) -> Device:
    """Connect to a device.

    Args:
        device_name: "local", a registered device, a family that one registered device is of, `replay:FILE`,
            or `TRANSPORT:ADDRESS` with a transport of an installed package.
        wait_s: how long its sessions wait where another host has the device.

    Raises:
        UnknownDeviceError: no device has this name.
        UserError: several devices are of this family.
        DeviceError: it does not answer.
    """
    device = connect_entry(Registry().find(device_name))
    device.wait_s = wait_s
    # Only this machine has a device that has no name of its own.
    device.place = device.place or f"{device.name} of {platform.node()}"
    return device


def connect_entry(entry: DeviceEntry) -> Device:
    """Connect to a device of the registry.

    Raises:
        DeviceError: it does not answer.
    """
    device = _connected(entry)
    if entry.timing != BOARD:
        # Else it is for the transport of a package to say.
        device.timing = entry.timing
    return device


def _connected(entry: DeviceEntry) -> Device:
    if "machine" in entry.options:
        _need_machine(entry)
    if entry.kind == "ssh":
        from host.transport.ssh import connect_ssh

        return connect_ssh(entry)
    if entry.kind == "emulated":
        from host.transport.emulated import connect_emulated

        return connect_emulated(entry)
    if entry.kind == "replay":
        from host.transport.replay import connect_replay

        return connect_replay(Path(entry.options["file"]))
    if entry.kind == "local":
        from host.transport.local import connect_local

        return connect_local()
    return _extension(entry)


def _extension(entry: DeviceEntry) -> Device:
    """Connect by the transport of an installed package: a function of the entry that returns a `Device`."""
    found = extensions("transports").get(entry.kind)
    if found is None:
        raise DeviceError(
            f"{entry.name}: no installed package has the transport {printable(entry.kind)}; install it again,"
            f" or remove the device: sdk devices remove {entry.name}"
        )
    device = found.load(callable, "function")(entry)
    if not isinstance(device, Device):
        raise DeviceError(f"{entry.name}: {found.title} returned no device; repair or remove that package")
    return device


def _need_machine(entry: DeviceEntry) -> None:
    from host.emulation.machine import architecture_of, running

    folder = Path(entry.options["machine"])
    if running(folder) is None:
        raise DeviceError(
            f"{entry.name}: the emulated machine is off, and what was installed on it gone; start it again:"
            f" sdk devices emulate {architecture_of(folder) or 'ARCHITECTURE'} --vm --name {entry.name}"
        )
