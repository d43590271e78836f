"""A fleet whose boards are agents of this machine, each with a store and a name of its own."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

import host.transport
from host.devices import DeviceEntry, Registry
from host.errors import DeviceError
from host.transport import Device
from host.transport.local import connect_local
from host.tuning.runners.speeds import BoardSpeeds


@dataclass
class LocalFleet:
    """Devices by name.

    Attributes:
        folder: for their stores.
        open: connections that were made, oldest first.
        out: devices that do not answer.
    """

    folder: Path
    open: list[Device] = field(default_factory=list)
    out: set[str] = field(default_factory=set)

    def connect(self, entry: DeviceEntry) -> Device:
        if entry.name in self.out:
            raise DeviceError(f"{entry.name}: no route to host; look at its cable")
        # Files are sent, as to a board.
        device = connect_local(self.folder / entry.name, share_files=False)
        device.name = entry.name
        self.open.append(device)
        return device

    def kill(self, name: str) -> bool:
        """Ends the agent of a device, as a power cut does; whether there was one."""
        for device in self.open:
            process = psutil.Process(device.agent.process.pid)  # type: ignore[attr-defined]
            if device.name == name and process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                return True
        return False


@pytest.fixture
def boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFleet]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("left", "right"):
        Registry().add(DeviceEntry(name, "ssh", "192.0.2.1", tags=("kitchen",)))
    fleet = LocalFleet(tmp_path / "boards")
    monkeypatch.setattr(host.transport, "connect_entry", fleet.connect)
    # Agents that share a machine disturb each other: who is odd is for the unit tests.
    monkeypatch.setattr(
        "host.tuning.runners.device_runner.BoardSpeeds", functools.partial(BoardSpeeds, tolerance=10.0)
    )
    yield fleet
    for device in fleet.open:
        device.close()
