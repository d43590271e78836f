"""How the host reaches a device: one module a transport, all of which give a `Device`."""

from __future__ import annotations

from host.errors import UnknownDeviceError
from host.transport.device import Device
from host.transport.session import KernelOutputs, KernelTime, Session

__all__ = ["Device", "KernelOutputs", "KernelTime", "Session", "connect", "device_names"]


def device_names() -> tuple[str, ...]:
    """Names that `connect` takes."""
    return ("local",)


def connect(device_name: str) -> Device:
    """Connect to a device by its name.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: it does not answer.
    """
    if device_name != "local":
        known = ", ".join(device_names())
        raise UnknownDeviceError(f"no device is called {device_name!r}; use --device with one of: {known}")
    from host.transport.local import connect_local

    return connect_local()
