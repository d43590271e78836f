"""One registered device, as it stands in the registry's file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from host.errors import UserError

KINDS = ("ssh", "emulated", "replay")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# The parts may end up in the user's ProxyCommand, which a shell reads: nothing that means something to it.
_ADDRESS = re.compile(
    r"(?:(?P<user>[\w.+\\-]+)@)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w-]+)\]|(?P<host>\w[\w.-]*))(?::(?P<port>\d+))?"
)
_RESERVED = ("local", "replay", "tag")
_LARGEST_PORT = 65535


@dataclass(frozen=True)
class DeviceEntry:
    """A device that the user named.

    Attributes:
        name: on the command line.
        kind: how it is reached: "ssh", "emulated" or "replay"; "local" for this machine, never registered.
        host: address, name, or alias of the user's SSH configuration; "" where the kind has none.
        user: on the board, "" for what the SSH configuration says.
        port: of its SSH server, 0 for what the SSH configuration says.
        board: its kind of board, "" until it has been recognised.
        tags: the user's words for groups of devices.
        options: what else the kind needs, by name.
    """

    name: str
    kind: str
    host: str = ""
    user: str = ""
    port: int = 0
    board: str = ""
    tags: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def emulated(self) -> bool:
        """Whether an emulator runs its programs, so that times say nothing of a board."""
        return self.kind == "emulated" or "machine" in self.options

    @property
    def address(self) -> str:
        """Where it is, as a person writes it; "" where the kind has no address."""
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user}{host}:{self.port}" if self.port else f"{user}{host}"


def checked(entry: DeviceEntry) -> DeviceEntry:
    """The entry itself if it can be registered.

    Raises:
        UserError: its name, a tag, its kind or its port cannot be.
    """
    for what, word in (("name", entry.name), *(("tag", tag) for tag in entry.tags)):
        if not _NAME.fullmatch(word):
            raise UserError(f"{word!r} is no {what} for a device: use letters, digits, '.', '_' and '-'")
    if entry.name in _RESERVED:
        raise UserError(f"{entry.name!r} has a meaning of its own; choose another name")
    if entry.kind not in KINDS:
        raise UserError(
            f"{entry.name}: no kind of device is called {entry.kind!r}; there is {', '.join(KINDS)}"
        )
    if not 0 <= entry.port <= _LARGEST_PORT:
        raise UserError(f"{entry.name}: {entry.port} is no port; use 1 to {_LARGEST_PORT}")
    if entry.kind == "ssh" and not entry.host:
        raise UserError(f"{entry.name}: a board needs an address; type --host user@address")
    return entry


def parse_address(text: str) -> tuple[str, str, int]:
    """User ("" if not given), host and port (0 if not given) of `user@host:port`; IPv6 in brackets.

    Raises:
        UserError: it is no address.
    """
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"] or 0) if found else 0
    if found is None or port > _LARGEST_PORT:
        raise UserError(f"--host {text!r} is no address; write it as user@address or user@address:port")
    return found["user"] or "", found["v6"] or found["host"], port


def from_table(name: str, table: object, where: str) -> DeviceEntry:
    """An entry out of its table in the registry's file.

    Raises:
        UserError: a field is missing, unknown or of the wrong type.
    """
    if not isinstance(table, dict):
        raise UserError(f"{where}: device {name} is no table; write [devices.{name}]")
    values: dict[str, Any] = dict(table)
    types: dict[str, type] = {"port": int, "tags": list, "options": dict}
    known = [one.name for one in fields(DeviceEntry) if one.name != "name"]
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{where}: device {name}: unknown field {key!r}: there is {', '.join(known)}")
        if type(value) is not types.get(key, str):
            raise UserError(f"{where}: device {name}: {key} = {value!r} has the wrong type")
    if "kind" not in values:
        raise UserError(f'{where}: device {name} has no kind; add kind = "ssh"')
    values["tags"] = tuple(str(tag) for tag in values.get("tags", ()))
    values["options"] = {str(key): str(value) for key, value in values.get("options", {}).items()}
    return checked(DeviceEntry(name=name, **values))


def to_table(entry: DeviceEntry) -> dict[str, Any]:
    """The entry as its table, without the fields that say nothing."""
    return {
        key: value for key, value in asdict(entry).items() if key != "name" and value not in ("", 0, (), {})
    }
