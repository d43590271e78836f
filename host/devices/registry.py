"""The file of the user's devices, and names, families and tags resolved to them."""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.devices.entry import ADDRESS, DeviceEntry, checked, from_table, to_table
from host.errors import DeviceError, UnknownDeviceError, UserError
from host.extensions import extensions
from host.places import config_root
from host.settings_file import read_table
from targets import families

_HEADER = "# Written by `sdk devices`; edit it while no such command runs.\n"
_TAG = "tag:"
_REPLAY = "replay:"


def registry_path() -> Path:
    """The path of the user's devices: `devices.toml` below XDG_CONFIG_HOME."""
    return config_root() / "devices.toml"


class Registry:
    """The user's devices.

    Args:
        path: of the file; `registry_path()` by default.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or registry_path()

    def entries(self) -> dict[str, DeviceEntry]:
        """All devices by name, in order of their names.

        Raises:
            UserError: the file cannot be used.
        """
        try:
            content = read_table(self.path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            reason = printable(error, 200)
            raise UserError(f"{self.path} cannot be read ({reason}); correct it or remove it") from error
        tables = content.get("devices", {})
        if not isinstance(tables, dict) or set(content) - {"devices"}:
            raise UserError(f"{self.path} holds more than [devices.NAME] tables; correct it or remove it")
        return {name: from_table(name, table, str(self.path)) for name, table in sorted(tables.items())}

    def get(self, name: str) -> DeviceEntry:
        """A device by its own name.

        Raises:
            UnknownDeviceError: there is none; the message lists those there are, likely ones first.
        """
        entries = self.entries()
        if name not in entries:
            raise UnknownDeviceError(_unknown(name, entries))
        return entries[name]

    def find(self, name: str) -> DeviceEntry:
        """The entry that `--device NAME` names.

        "local", `replay:FILE`, `TRANSPORT:ADDRESS` with a transport of an installed package, a device's own
        name, or the name of a family that one device is of.

        Raises:
            UnknownDeviceError: there is none.
            UserError: several devices are of this family.
        """
        if name == "local":
            return DeviceEntry(name, "local")
        if name.startswith(_REPLAY):
            return DeviceEntry(name, "replay", options={"file": name.removeprefix(_REPLAY)})
        kind, colon, address = name.partition(":")
        if colon and kind in extensions("transports"):
            return DeviceEntry(name, kind, options={ADDRESS: address})
        entries = self.entries()
        if name in entries:
            return entries[name]
        members = families().get(name)
        if members is None:
            raise UnknownDeviceError(_unknown(name, entries))
        found = [entry for entry in entries.values() if entry.board in members]
        if len(found) > 1:
            names = ", ".join(f"{entry.name} ({entry.board})" for entry in found)
            raise UserError(f"several devices are of the family {name}: {names}; choose one with --device")
        if not found:
            raise UnknownDeviceError(
                f"no registered device is of the family {name} ({', '.join(members)}); add yours:"
                f" sdk devices add NAME --host user@address"
            )
        return found[0]

    def add(self, entry: DeviceEntry, overwrite: bool = False) -> None:
        """Register a device.

        Args:
            entry: of the device.
            overwrite: replace one of the same name.

        Raises:
            UserError: the entry cannot be, or there is one of this name.
        """
        checked(entry)
        if entry.name in families():
            raise UserError(f"{entry.name!r} is the name of a family of boards; choose another name")
        with self._changing() as entries:
            if entry.name in entries and not overwrite:
                known = entries[entry.name]
                raise UserError(
                    f"there is a device {entry.name} already ({known.address or known.kind}); remove it first"
                    f" (sdk devices remove {entry.name}) or choose another name"
                )
            entries[entry.name] = entry

    def set_board(self, name: str, board: str) -> DeviceEntry:
        """Keep what kind of board a device turned out to be.

        Raises:
            UnknownDeviceError: no device has this name.
        """
        with self._changing() as entries:
            if name not in entries:
                raise UnknownDeviceError(_unknown(name, entries))
            entries[name] = replace(entries[name], board=board)
            return entries[name]

    def remove(self, name: str) -> DeviceEntry:
        """Forget a device.

        Raises:
            UnknownDeviceError: no device has this name.
        """
        with self._changing() as entries:
            if name not in entries:
                raise UnknownDeviceError(_unknown(name, entries))
            return entries.pop(name)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, DeviceEntry]]:
        """All entries, written back afterwards; other commands wait meanwhile."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                entries = self.entries()
                yield entries
                _write(self.path, entries)
        except OSError as error:
            raise DeviceError(f"{self.path} cannot be written: {error}; set XDG_CONFIG_HOME") from error


def resolve(names: str | list[str], registry: Registry | None = None) -> list[DeviceEntry]:
    """The devices that `--device` means.

    Args:
        names: names, families or `tag:NAME`, as a list or separated by commas.
        registry: the user's by default.

    Returns:
        In the order given, those of a tag in the order of their names, none twice.

    Raises:
        UnknownDeviceError: a name or a tag stands for nothing.
        UserError: a family stands for several.
    """
    registry = registry or Registry()
    text = names if isinstance(names, str) else ",".join(names)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UserError("--device names no device; sdk devices list shows them")
    found: dict[str, DeviceEntry] = {}
    for word in words:
        tagged = (
            _tagged(word.removeprefix(_TAG), registry) if word.startswith(_TAG) else [registry.find(word)]
        )
        found.update({entry.name: entry for entry in tagged if entry.name not in found})
    return list(found.values())


def _tagged(tag: str, registry: Registry) -> list[DeviceEntry]:
    entries = registry.entries()
    found = [entry for entry in entries.values() if tag in entry.tags]
    if not found:
        tags = sorted({tag for entry in entries.values() for tag in entry.tags})
        known = f"there is {', '.join(tags)}" if tags else "sdk devices add --tag gives a device one"
        raise UnknownDeviceError(f"no device has the tag {tag!r}; {known}")
    return found


def _unknown(name: str, entries: dict[str, DeviceEntry]) -> str:
    known = ["local", *entries]
    near = difflib.get_close_matches(name, [*known, *families()], n=2)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    if "@" in name:
        return f"{name!r} is an address and no name; add the board first: sdk devices add NAME --host {name}"
    return (
        f"no device is called {name!r}{hint}; use --device with one of: {', '.join(known)}, or add it:"
        f" sdk devices add {name} --host user@address"
    )


def _write(path: Path, entries: dict[str, DeviceEntry]) -> None:
    handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_HEADER + "".join(_section(entry) for _, entry in sorted(entries.items())))
            file.flush()
            os.fsync(file.fileno())
        Path(partial).replace(path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _section(entry: DeviceEntry) -> str:
    table = to_table(entry)
    options = table.pop("options", {})
    text = f"\n[devices.{_quoted(entry.name)}]\n" + _lines(table)
    return text + (f"\n[devices.{_quoted(entry.name)}.options]\n" + _lines(options) if options else "")


def _lines(table: dict[str, Any]) -> str:
    return "".join(f"{_quoted(key)} = {_value(value)}\n" for key, value in table.items())


def _quoted(key: str) -> str:
    return json.dumps(key) if not key.replace("-", "").replace("_", "").isalnum() else key


def _value(value: object) -> str:
    # A JSON string is a TOML string, and so are numbers and lists of strings; DEL alone is not allowed raw.
    plain = list(value) if isinstance(value, tuple) else value
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
