"""The names of the engines that run a command's work (`host.execution`)."""

from __future__ import annotations

from device_agent.contract.text import printable
from host.errors import UserError

# This process; hosts of this machine; and, with an address, those of the cluster that is there.
LOCAL, RAY, RAY_AT = "local", "ray", "ray://"
_USUAL_PORT = "6379"
# The resource by which a host of a cluster declares a board that it reaches.
BOARD = "board:"


def check_engine(name: str) -> None:
    """Refuse what is no engine.

    Raises:
        UserError: says what to type.
    """
    if name not in (LOCAL, RAY) and not (name.startswith(RAY_AT) and head_of(name)):
        raise UserError(
            f"--engine {printable(name, 80)}: use local, ray, or ray://HOST:PORT of a cluster's head"
        )


def head_of(name: str) -> str:
    """HOST:PORT of a cluster's head in the name of an engine; "" where there is none."""
    text = name.removeprefix(RAY_AT) if name.startswith(RAY_AT) else ""
    host, _, port = text.rpartition(":") if ":" in text else (text, "", _USUAL_PORT)
    named = bool(host) and all(one.isascii() and (one.isalnum() or one in ".-_") for one in host)
    fits = port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    return f"{host}:{port}" if named and fits else ""
