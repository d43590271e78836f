"""The description of the machine in result files."""

from __future__ import annotations

import platform
from typing import Any

from host.deploy import versions
from host.transport import Device


def machine_of(device: Device) -> dict[str, Any]:
    """The machine of a device, its state now, and the versions of the software on it and on the host."""
    description = device.describe()
    return {
        "cpu": description.cpu_name,
        "cores": description.cores,
        "memory_bytes": description.memory_bytes,
        "system": platform.platform(),
        "state": device.state(),
        "versions": {**versions(), **description.software},
    }
