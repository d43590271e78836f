"""A ticket as the device's agent prints it: where it listens, and what lets one connection in."""

from __future__ import annotations

from dataclasses import dataclass

from device_agent.contract.limits import LIMITS
from device_agent.contract.strict_json import parse
from host.errors import DeviceError
from host.transport.replies import fields_of, shown
from host.transport.wire import SCHEMA


@dataclass(frozen=True)
class Ticket:
    """What `device-agent ticket` prints.

    Attributes:
        port: of the agent, on the device's loopback interface.
        token: lets one connection in, once.
    """

    port: int
    token: str


def ticket_of(name: str, printed: bytes) -> Ticket:
    """The ticket in what a device printed; a login script may have greeted before.

    Args:
        name: of the device.
        printed: all of it.

    Raises:
        DeviceError: there is none, or it is of an agent that speaks another protocol.
    """
    lines = printed.strip().splitlines() or [b""]
    try:
        values = parse(lines[-1], LIMITS.wire.hello_bytes, "the ticket")
    except ValueError as error:
        raise DeviceError(f"{name}: the agent gives no ticket: {error}; install it again") from error
    if not isinstance(values, dict):
        raise DeviceError(f"{name}: the agent's ticket is not a JSON object; install the agent again")
    fields = fields_of(name, values)
    schema = fields.name("schema")
    if schema != SCHEMA:
        raise DeviceError(
            f"{name}: its agent speaks {shown(schema)}, this host {SCHEMA}; type:"
            f" sdk devices install-agent {name}"
        )
    return Ticket(fields.whole("port", 1, 65535), fields.text("token"))
