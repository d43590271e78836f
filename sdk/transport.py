"""The parts of a transport, for packages that add a way to reach devices.

A package names a function by the entry point `edgetlm.transports`. The function takes a `DeviceEntry` and
returns a `Device`: a connection to the agent, with an `Agent` of the transport's own, which says how the
agent is reached and how it is stopped. `connect_local` gives the device of an agent on this machine. The
transport of an emulator or a simulated board sets the device's `timing`, so that no result shows its times as
those of a board.
"""

from __future__ import annotations

from host.devices import DeviceEntry
from host.model import EMULATOR, SIMULATION, TimingPolicy
from host.transport.agent import Agent, OnThisMachine
from host.transport.device import Device
from host.transport.local import connect_local
from host.transport.ticket import Ticket
from host.transport.wire import Connection, Stream

__all__ = [
    "EMULATOR",
    "SIMULATION",
    "Agent",
    "Connection",
    "Device",
    "DeviceEntry",
    "OnThisMachine",
    "Stream",
    "Ticket",
    "TimingPolicy",
    "connect_local",
]
