"""The two parts of a `Device`: the agent as its transport reaches it, and the connection to the agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from host.transport.wire import Stream, dial_loopback
from targets import MachineDescription


class Agent(Protocol):
    """An agent, as its transport reaches it."""

    def end_reason(self) -> str:
        """Why the agent ended or cannot be reached; "" if that is not known."""

    def stop(self) -> None:
        """Ends whatever the transport started."""

    def dial(self, port: int) -> Stream:
        """Connect to a port of the device's loopback interface; OSError where nothing answers."""

    def forward(self, port: int) -> int:
        """A port of this machine's loopback interface that leads to one of the device's, for one client."""

    def provide(self, engine: str, describe: Callable[[], MachineDescription]) -> None:
        """Install what an engine needs on the device; EngineError where it is not available."""


class AgentConnection(Protocol):
    """What a device needs of the connection to its agent; see `host.transport.wire.Connection`."""

    @property
    def identity(self) -> str:
        """A random word that identifies the connection."""

    def request(
        self, header: dict[str, Any], blobs: Sequence[bytes | memoryview] = (), silence_s: float | None = None
    ) -> tuple[dict[str, Any], bytearray]:
        """Send one request and wait for its reply; DisconnectedError where the other end is gone."""

    def send_file(self, header: dict[str, Any], path: Path) -> dict[str, Any]:
        """Send a request whose blob is a file; DisconnectedError where the other end is gone."""

    def close(self) -> None:
        """Close the connection."""


class OnThisMachine:
    """The half of an agent that is about reaching it, where its loopback interface is the host's."""

    def dial(self, port: int) -> Stream:
        """Connect to a port; OSError where nothing answers."""
        return dial_loopback(port)

    def forward(self, port: int) -> int:
        """The port of this host at which the agent's `port` is reached: the same one."""
        return port

    def provide(self, engine: str, describe: Callable[[], MachineDescription]) -> None:
        """Nothing: the agent's interpreter is this machine's, with the engines that are installed here."""
