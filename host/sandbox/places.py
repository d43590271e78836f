"""The paths that every worker may read: the interpreter, its libraries, and files about the machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from host.places import home

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAMS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/nix/store", "/etc/alternatives")
# Nothing of other processes: their environment may hold secrets.
_SYSTEM = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/nsswitch.conf",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/self",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
)
_PARTS = ("host", "device_agent", "targets", "sdk")


def programs() -> list[Path]:
    """Folders with programs and libraries that a worker runs."""
    own = home().resolve()
    found = [Path(place) for place in (*_PROGRAMS, sys.prefix, sys.base_prefix, sys.exec_prefix)]
    found += [Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if place]
    found += [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    found += [_ROOT / part for part in _PARTS]
    return [place for place in found if place.is_absolute() and not _holds(place.resolve(), own)]


def system() -> list[Path]:
    """Files and folders of the system: processor, memory, users, loader cache."""
    return [Path(place) for place in _SYSTEM]


def root() -> Path:
    """The folder that this product's packages lie in."""
    return _ROOT


def _holds(place: Path, home: Path) -> bool:
    return home.is_relative_to(place)
