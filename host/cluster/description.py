"""The table `[cluster]` of a project file: hosts, how they are reached, and the boards that they reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.address import LARGEST_PORT, is_host
from host.errors import UserError
from host.settings_file import read_table

TABLE = "cluster"
_KEYS = ("ssh", "address", "python", "boards", "cores", "board-cores")
_MOST_HOSTS, _MOST_BOARDS, _MOST_CORES, _LONGEST = 256, 1024, 4096, 1024
_PORT = 6379


@dataclass(frozen=True)
class ClusterHost:
    """A host of a cluster.

    Attributes:
        name: in the file.
        ssh: user@address, or an alias of the user's SSH configuration; "" for this machine.
        address: by which the other hosts reach it.
        python: its interpreter with EdgeTLM and Ray; "" for the one of this process, or `python3` over SSH.
        boards: names of the boards that it reaches, as its own list of devices has them.
        cores: for builds; None for all but those of the boards.
        board_cores: that builds leave to the boards.
    """

    name: str
    address: str
    ssh: str = ""
    python: str = ""
    boards: tuple[str, ...] = ()
    cores: int | None = None
    board_cores: int = 1


@dataclass(frozen=True)
class ClusterDescription:
    """A cluster.

    Attributes:
        hosts: its head first.
        port: of the head.
    """

    hosts: tuple[ClusterHost, ...]
    port: int = _PORT

    @property
    def head(self) -> str:
        """HOST:PORT of the head."""
        return f"{self.hosts[0].address}:{self.port}"


def read_cluster(path: Path) -> ClusterDescription:
    """The cluster of a project file.

    Args:
        path: of the file.

    Raises:
        UserError: it has none, or one that cannot be; says which key.
    """
    try:
        table = read_table(path).get(TABLE)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({printable(error, 200)}); correct it or remove it"
        ) from error
    if table is None:
        raise UserError(f"{path} describes no cluster: add [cluster.hosts.NAME] tables (docs/scale.md)")
    try:
        return _cluster(table)
    except ValueError as error:
        raise UserError(f"{path}: [{TABLE}] {error}") from error


def _cluster(table: Any) -> ClusterDescription:
    _known(table, ("head", "port", "hosts"), "")
    hosts = table.get("hosts")
    if not isinstance(hosts, dict) or not 0 < len(hosts) <= _MOST_HOSTS:
        raise ValueError(f"hosts: give 1 to {_MOST_HOSTS} tables [cluster.hosts.NAME]")
    found = {name: _host(name, one) for name, one in hosts.items()}
    first = table.get("head", next(iter(found)))
    if not isinstance(first, str) or first not in found:
        raise ValueError(f"head: {printable(first, 80)} is no host: name one of {', '.join(found)}")
    boards = Counter(board for one in found.values() for board in one.boards)
    for board, count in boards.items():
        if count > 1:
            raise ValueError(f"boards: {printable(board, 80)} is given {count} times: leave it to one host")
    rest = (one for name, one in found.items() if name != first)
    port = _whole(table.get("port", _PORT), 1, LARGEST_PORT, "port")
    return ClusterDescription((found[first], *rest), port)


def _host(name: str, table: Any) -> ClusterHost:
    where = f"hosts.{printable(name, 40)}: "
    if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 64:
        raise ValueError(f"{where}a name has letters, digits, dashes and underscores")
    _known(table, _KEYS, where)
    address = _text(table, "address", where)
    if not is_host(address):
        raise ValueError(f"{where}address: give the name or address by which the other hosts reach it")
    ssh = _text(table, "ssh", where)
    if ssh.startswith("-"):
        raise ValueError(f"{where}ssh: give user@address, or an alias of your SSH configuration")
    boards = table.get("boards", [])
    names = isinstance(boards, list) and all(
        isinstance(one, str) and one and one.isprintable() and len(one) <= _LONGEST for one in boards
    )
    if not names or len(boards) > _MOST_BOARDS:
        raise ValueError(f"{where}boards: give a list of names")
    cores = table.get("cores")
    return ClusterHost(
        name,
        address,
        ssh,
        _text(table, "python", where),
        tuple(boards),
        None if cores is None else _whole(cores, 0, _MOST_CORES, f"{where}cores"),
        _whole(table.get("board-cores", 1), 1, _MOST_CORES, f"{where}board-cores"),
    )


def _known(table: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}write it as a table")
    for key in table:
        if key not in keys:
            raise ValueError(f"{where}no key {printable(key, 40)!r}: use {', '.join(keys)}")


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST:
        raise ValueError(f"{where}{key}: give a text")
    return value


def _whole(value: Any, least: int, most: int, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{where}: give a whole number of {least} to {most}")
    return value
