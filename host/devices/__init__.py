"""The user's devices: which there are, what each is, and putting the agent on them."""

from __future__ import annotations

from host.devices.entry import DeviceEntry
from host.devices.registry import Registry, registry_path, resolve

__all__ = ["DeviceEntry", "Registry", "registry_path", "resolve"]
