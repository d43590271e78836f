"""One registered device, as the registry's file has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from device_agent.contract.text import printable
from host.address import LARGEST_PORT, is_host, is_user
from host.address import parse_address as parse_address
from host.errors import UserError
from host.extensions import extensions
from host.model import BOARD, EMULATOR, SIMULATION, TimingPolicy

# The option that holds what follows the transport in `TRANSPORT:ADDRESS`.
ADDRESS = "address"
KINDS = ("ssh", "emulated", "replay")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Names that mean something on the command line; a transport cannot have them either.
_RESERVED = ("local", "replay", "tag", "ssh", "emulated")
_LONGEST_NAME = 64
_LONGEST_OPTION = 2048
# Options are paths and words of the user's, and go to the board quoted. None has a line break for a reason.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class DeviceEntry:
    """A device that the user named.

    Attributes:
        name: on the command line.
        kind: how it is reached: "ssh", "emulated", "replay" or a transport of an installed package; "local"
            for this machine, never registered.
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
    def timing(self) -> TimingPolicy:
        """What its times are worth."""
        if self.kind == "replay":
            return SIMULATION
        return EMULATOR if self.kind == "emulated" or "machine" in self.options else BOARD

    @property
    def address(self) -> str:
        """Where it is, as a person writes it; "" where the kind has no address."""
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user}{host}:{self.port}" if self.port else f"{user}{host}"


def checked(entry: DeviceEntry) -> DeviceEntry:
    """The entry itself if it can be registered; the same check for the command line and for the file.

    Raises:
        UserError: a field cannot be what it is.
    """
    for what, word in (("name", entry.name), *(("tag", tag) for tag in entry.tags)):
        if not _is_name(word):
            raise UserError(
                f"{printable(repr(word))} is no {what} for a device: use letters, digits, '.', '_' and '-'"
            )
    if entry.name in _RESERVED:
        raise UserError(f"{entry.name!r} has a meaning of its own; choose another name")
    kinds = (*KINDS, *extensions("transports", _RESERVED))
    if entry.kind not in kinds:
        raise UserError(
            f"{entry.name}: no kind of device is called {printable(repr(entry.kind))};"
            f" there is {', '.join(kinds)}"
        )
    if not 0 <= entry.port <= LARGEST_PORT:
        raise UserError(f"{entry.name}: {entry.port} is no port; use 1 to {LARGEST_PORT}")
    if entry.kind == "ssh" and not entry.host:
        raise UserError(f"{entry.name}: a board needs an address; type --host user@address")
    if entry.host and not is_host(entry.host):
        raise UserError(
            f"{entry.name}: {printable(repr(entry.host))} is no host; give a name or an address, without"
            " spaces, quotes and what a shell would read"
        )
    if entry.user and not is_user(entry.user):
        raise UserError(
            f"{entry.name}: {printable(repr(entry.user))} is no user; use letters, digits,"
            " '.', '_', '+' and '-'"
        )
    if entry.board and not _is_name(entry.board):
        raise UserError(
            f"{entry.name}: {printable(repr(entry.board))} is no kind of board; sdk env lists them"
        )
    for key, value in entry.options.items():
        if not _is_name(key) or len(value) > _LONGEST_OPTION or _CONTROL.search(value):
            raise UserError(
                f"{entry.name}: the option {printable(repr(key))} cannot be {printable(repr(value), 80)}:"
                f" at most {_LONGEST_OPTION} characters, no line breaks and no control characters"
            )
    return entry


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def from_table(name: str, table: object, where: str) -> DeviceEntry:
    """An entry out of its table in the registry's file.

    Raises:
        UserError: a field is missing, unknown or of the wrong type.
    """
    if not isinstance(table, dict):
        raise UserError(f"{where}: device {printable(name)} is no table; write [devices.NAME]")
    values: dict[str, Any] = dict(table)
    types: dict[str, type] = {"port": int, "tags": list, "options": dict}
    known = [one.name for one in fields(DeviceEntry) if one.name != "name"]
    for key, value in values.items():
        if key not in known:
            raise UserError(
                f"{where}: device {printable(name)}: unknown field {printable(repr(key))}:"
                f" there is {', '.join(known)}"
            )
        if type(value) is not types.get(key, str):
            raise UserError(
                f"{where}: device {printable(name)}: {key} = {printable(repr(value), 80)} has the wrong type"
            )
    if "kind" not in values:
        raise UserError(f'{where}: device {printable(name)} has no kind; add kind = "ssh"')
    values["tags"] = tuple(str(tag) for tag in values.get("tags", ()))
    values["options"] = {str(key): str(value) for key, value in values.get("options", {}).items()}
    return checked(DeviceEntry(name=name, **values))


def to_table(entry: DeviceEntry) -> dict[str, Any]:
    """The entry as its table, without empty fields."""
    return {
        key: value for key, value in asdict(entry).items() if key != "name" and value not in ("", 0, (), {})
    }
