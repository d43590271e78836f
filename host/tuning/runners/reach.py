"""How a command reaches boards and builds programs: from this process, or by the hosts of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from host.closing import Closing
from host.execution import Actor, Engine, LocalEngine, open_engine
from host.options.engine import LOCAL
from host.transport import Device
from host.tuning.runners.connection import BoardAccess, BoardConnection, DeviceConnection

T = TypeVar("T")
P = ParamSpec("P")


class LeadConnection(BoardConnection, Protocol):
    """A connection to a board of which the caller knows the device.

    Attributes:
        device: the present connection; None where there is none.
    """

    device: Device | None


class Reach(Closing):
    """Boards that this process reaches itself, and programs that it builds.

    Attributes:
        engine: runs the jobs.
        epochs: in which boards are (`host.records.epochs`), by name; without those that have none.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine: Engine = engine or LocalEngine()
        self.epochs: dict[str, str] = {}

    def connect(self, name: str, wait_s: float = 0.0) -> Device:
        """Connect to a device; see `host.transport.connect`."""
        from host.transport import connect

        return connect(name, wait_s)

    def connection(self, access: BoardAccess) -> LeadConnection:
        """The connection that measures programs on a board."""
        return DeviceConnection(access)

    def beside(
        self, device: Device, work: Callable[Concatenate[Device, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Do work with a connected device in the process that has the connection.

        Args:
            device: connected by this.
            work: a function of a module, and for a process of another host its result is copied.
            arguments: further ones, such as listeners to progress; another host reports no progress.
            named: the same by name.
        """
        return work(device, *arguments, **named)

    def close(self) -> None:
        """End the engine."""
        self.engine.close()


class HostedReach(Reach):
    """Boards that hosts of an engine reach: each has an actor, which keeps its sessions.

    Args:
        engine: of these hosts.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._actors: dict[str, Actor] = {}

    def connect(self, name: str, wait_s: float = 0.0) -> Device:
        """Connect to a device by its host.

        Raises:
            UserError: no host reaches it.
            DeviceError: it does not answer, or its host does not.
        """
        from host.transport.hosted import connect_hosted

        return connect_hosted(self._actor(name), name, wait_s)

    def connection(self, access: BoardAccess) -> LeadConnection:
        """See `Reach.connection`; the measurements begin and end on the device's host."""
        from host.tuning.runners.hosted import HostedConnection

        return HostedConnection(access, self._actor(access.name))

    def beside(
        self, device: Device, work: Callable[Concatenate[Device, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """See `Reach.beside`; the loss of a host is the loss of its devices.

        Raises:
            HostLost: the host, or its connection to the device, is gone.
        """
        from host.tuning.runners.hosted import on_its_host

        return on_its_host(self._actor(device.name), device, work)

    def _actor(self, name: str) -> Actor:
        from host.tuning.runners.hosted import MeasuringBoard

        if name not in self._actors:
            self._actors[name] = self.engine.actor(MeasuringBoard, name, at=name)
        return self._actors[name]


def open_reach(engine: str, names: Sequence[str]) -> Reach:
    """How devices are reached.

    Args:
        engine: see `host.execution.open_engine`.
        names: of the devices.

    Raises:
        UserError: there is no such engine, or its package is not installed.
        EdgeError: it does not answer.
    """
    return Reach() if engine == LOCAL else HostedReach(open_engine(engine, names))
