"""A transport: this machine, with its bundles and the agent's messages in a folder of your choice.

`--device folder:/srv/bench` calls `connect` with what follows the colon as the option "address". A transport
for another wire returns a `Device` of its own `Agent`: how the agent is reached, and how it is stopped.
"""

from __future__ import annotations

from pathlib import Path

from sdk.errors import UserError
from sdk.transport import Device, DeviceEntry, connect_local


def connect(entry: DeviceEntry) -> Device:
    """Start the agent and connect to it.

    Raises:
        UserError: no folder is named, or it is not there.
        DeviceError: the agent does not start.
    """
    folder = Path(entry.options["address"])
    if not entry.options["address"] or not folder.is_dir():
        raise UserError(f"{entry.name}: there is no folder {folder}; write --device folder:/path/of/a/folder")
    device = connect_local(folder / "bundles", folder / "agent.log", share_files=False)
    device.name = entry.name
    return device
