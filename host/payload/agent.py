"""The device agent as one archive: Python files that every board with Python 3.8 or newer can run."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from host.errors import PayloadError
from host.payload.archive import compressed, content_hash, files_below

_PACKAGE = "device_agent"
# Sources that are compiled on the host, and boards that are none.
_SUFFIXES = (".py", ".json")
_LEFT_OUT = ("native/", "simulation/", "tests/", "__pycache__/")


@dataclass(frozen=True)
class AgentArchive:
    """The agent's files, packed.

    Attributes:
        content: a tar.gz archive whose entries lie below `device_agent/`.
        sha256: of the files' names, modes and contents; the same on every host for the same agent.
        names: of the files in the archive, in order.
    """

    content: bytes
    sha256: str
    names: tuple[str, ...]


@functools.lru_cache(maxsize=1)
def agent_archive() -> AgentArchive:
    """Pack the agent that is installed beside this host.

    Raises:
        PayloadError: there is none.
    """
    files = agent_files()
    return AgentArchive(compressed(files), content_hash(files), tuple(files))


def agent_files() -> dict[str, Path]:
    """The agent's Python files by their name in the archive, in order.

    Raises:
        PayloadError: the package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise PayloadError("the package device_agent is not installed; install the complete package edgetlm")
    folder = Path(next(iter(spec.submodule_search_locations)))
    return {
        f"{_PACKAGE}/{name}": path
        for name, path in files_below(folder).items()
        if path.suffix in _SUFFIXES and not any(part in f"{name}/" for part in _LEFT_OUT)
    }
