"""What a board answers, checked: fields of other types, and paths that are none, are refused by name.

A board may be anybody's: its answers go into commands, messages and arithmetic of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import is_printable, printable
from host.errors import DeviceError

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}")
_SHELL = re.compile(r"""['"`$;&<>|\\]""")
_LARGEST = 1 << 62

T = TypeVar("T")


@dataclass(frozen=True)
class BoardStatus:
    """The agent and the payloads that are installed on a board.

    Attributes:
        home: the agent's folder.
        python: interpreter of the agent.
        agent: hash of the agent in use, "" for none.
        agents: hashes of all that are there.
        payloads: hashes of the runtimes that are there.
        serves: which runtime serves which engine.
        incoming: bytes that have arrived, by the name of an unfinished archive.
        free_bytes: on the file system of the folder.
        unit: state of the service: `available`, `enabled`, `linger`, `system`, `reason`.
    """

    home: str
    python: str
    agent: str
    agents: tuple[str, ...]
    payloads: tuple[str, ...]
    serves: Mapping[str, Mapping[str, str]]
    incoming: Mapping[str, int]
    free_bytes: int
    unit: Mapping[str, Any]


@dataclass(frozen=True)
class BoardFacts:
    """The facts that a board reports about itself.

    Attributes:
        user: who is logged in.
        system: name and release of its kernel.
        machine: of its processor.
        libc: name and version of its C library.
        time_s: its clock, seconds since 1970.
        power_mode: what nvpmodel says, "" without it.
        throttled: what vcgencmd says, "" without it.
        tvm_ffi: why the runtime does not load, "" if it does.
        agent_log: last line of the agent's log.
    """

    user: str
    system: str
    machine: str
    libc: str
    time_s: float
    power_mode: str
    throttled: str
    tvm_ffi: str
    agent_log: str


class Answer:
    """A board's answer, from which fields are taken with their type.

    Args:
        name: of the device, for messages.
        fields: as they were parsed.
    """

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self._name = name
        self._fields = fields

    def text(self, field: str) -> str:
        """A text of any kind, made fit to be shown."""
        return self._taken(field, str, printable)

    def path(self, field: str) -> str:
        """An absolute path, or the name of a program; without line breaks and control characters."""
        return self._taken(field, str, _path)

    def digest(self, field: str) -> str:
        """A SHA-256 in hexadecimal; "" for any other name, which is no version of ours."""
        return self._taken(field, str, lambda text: text if _is_digest(text) else "")

    def digests(self, field: str) -> tuple[str, ...]:
        """Those names of a list that are a SHA-256; others are no versions of ours."""
        return self._taken(
            field,
            list,
            lambda names: tuple(n for n in _bounded(names) if isinstance(n, str) and _is_digest(n)),
        )

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of texts, each made fit to be shown."""
        return self._taken(
            field, list, lambda texts: tuple(printable(_typed(text, str)) for text in _bounded(texts))
        )

    def count(self, field: str) -> int:
        """A whole number that is not negative."""
        return self._taken(field, int, _count)

    def seconds(self, field: str) -> float:
        """A number of seconds since 1970."""
        return self._taken(field, (int, float), lambda value: float(_between(value, 0, _LARGEST)))

    def sizes(self, field: str) -> dict[str, int]:
        """Whole numbers by the name of a file; files whose name is none of ours are left out."""
        return self._taken(
            field,
            dict,
            lambda sizes: {n: _count(size) for n, size in _bounded(sizes).items() if _NAME.fullmatch(n)},
        )

    def flags(self, field: str, names: tuple[str, ...]) -> dict[str, Any]:
        """A table of yes and no by these names, and its `reason`."""

        def taken(table: dict[str, Any]) -> dict[str, Any]:
            found = {name: _typed(table[name], bool) for name in names}
            return {**found, "reason": printable(_typed(table["reason"], str))}

        return self._taken(field, dict, taken)

    def runtimes(self, field: str) -> dict[str, dict[str, str]]:
        """Kind and place of a runtime by its engine's name; entries that are none of ours are left out."""
        return self._taken(
            field,
            dict,
            lambda table: {
                engine: {"kind": entry["kind"], "path": entry["path"]}
                for engine, entry in _bounded(table).items()
                if _NAME.fullmatch(engine) and _is_runtime(entry)
            },
        )

    def _taken(self, field: str, kind: type | tuple[type, ...], make: Callable[[Any], T]) -> T:
        value = self._fields.get(field)
        try:
            return make(_typed(value, kind))
        except (ValueError, LookupError, TypeError) as error:
            said = printable(repr(value), 80) if field in self._fields else "nothing"
            raise DeviceError(
                f"{self._name}: the board answers {said} as its {field}, which no EdgeTLM agent does;"
                f" see whose board that is, then install the agent anew:"
                f" sdk devices install-agent {self._name}"
            ) from error


def status_of(name: str, fields: Mapping[str, Any]) -> BoardStatus:
    """The answer to `status`.

    Raises:
        DeviceError: a field is not what it has to be.
    """
    answer = Answer(name, fields)
    return BoardStatus(
        home=answer.path("home"),
        python=answer.path("python"),
        agent=answer.digest("agent"),
        agents=answer.digests("agents"),
        payloads=answer.digests("payloads"),
        serves=answer.runtimes("serves"),
        incoming=answer.sizes("incoming"),
        free_bytes=answer.count("free_bytes"),
        unit=unit_of(name, fields),
    )


def unit_of(name: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the service as `status` has it in `unit`.

    Raises:
        DeviceError: a field is not what it has to be.
    """
    return Answer(name, fields).flags("unit", ("available", "enabled", "linger", "system"))


def facts_of(name: str, fields: Mapping[str, Any]) -> BoardFacts:
    """The answer to `examine`.

    Raises:
        DeviceError: a field is not what it has to be.
    """
    answer = Answer(name, fields)
    return BoardFacts(
        user=answer.text("user"),
        system=answer.text("system"),
        machine=answer.text("machine"),
        libc=answer.text("libc"),
        time_s=answer.seconds("time_s"),
        power_mode=answer.text("power_mode"),
        throttled=answer.text("throttled"),
        tvm_ffi=answer.text("tvm_ffi"),
        agent_log=answer.text("agent_log"),
    )


def _typed(value: Any, kind: Any) -> Any:
    # A bool is an int in Python, and no number in JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(kind)
    return value


def _bounded(many: Any) -> Any:
    if len(many) > LIMITS.ssh.entries:
        raise ValueError(len(many))
    return many


def _between(value: Any, low: int, high: int) -> Any:
    if not low <= value <= high:
        raise ValueError(value)
    return value


def _count(value: Any) -> int:
    return int(_between(_typed(value, int), 0, _LARGEST))


def _path(text: str) -> str:
    usable = text.startswith("/") and len(text) <= LIMITS.ssh.path_characters and is_printable(text)
    # They are quoted in every command; a folder of ours has no such name for a reason, all the same.
    if not usable or _SHELL.search(text) or ".." in text.split("/"):
        raise ValueError(text)
    return text


def _is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _is_runtime(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    kind, path = entry.get("kind"), entry.get("path")
    if not (isinstance(kind, str) and isinstance(path, str)):
        return False
    folder, _, digest = path.partition("/")
    return folder == "payloads" and _is_digest(digest) and _NAME.fullmatch(kind) is not None
