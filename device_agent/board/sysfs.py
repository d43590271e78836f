"""Numbers in sysfs, read cheaply many times a second."""

from __future__ import annotations

import errno
import os
from typing import Iterator, List, Optional, Tuple

# Faster than 50 times a second costs the board more than it tells: INA chips average for milliseconds.
FASTEST_S = 0.02
_NUMBER_BYTES = 64


class Attribute:
    """One file of sysfs with a number in it, kept open between readings.

    The kernel makes the value anew for every read at offset 0.

    Args:
        path: of the file; opened at the first reading.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1

    def number(self) -> int:
        """The value at this moment, in the unit of the file.

        Raises:
            OSError: it cannot be read now; `filename` is set. The next reading opens the file again.
            ValueError: it holds no number.
        """
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(self._descriptor, _NUMBER_BYTES, 0)
        except OSError as error:
            self.close()
            raise OSError(error.errno, error.strerror, self.path) from error
        if not data:
            raise OSError(errno.ENODATA, "is empty", self.path)
        return int(data)

    def close(self) -> None:
        """Lets the file go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def text(path: str) -> str:
    """What a file says, without white space around it.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip("\0 \t\n")


def text_or_none(path: str) -> Optional[str]:
    """The same; None where it cannot be read."""
    try:
        return text(path)
    except OSError:
        return None


def number_or_none(path: str) -> Optional[int]:
    """A whole number, None where there is none to be read."""
    try:
        return int(text(path))
    except (OSError, ValueError):
        return None


def children(folder: str, start: str = "") -> List[str]:
    """Paths in a folder whose names start so, in the order of their names; [] where it does not exist."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in sorted(names) if name.startswith(start)]


def hwmon_chips(root: str) -> Iterator[Tuple[str, str]]:
    """Every hwmon folder with the name of its chip; indices change between boots and say nothing."""
    for folder in children(os.path.join(root, "sys/class/hwmon"), "hwmon"):
        # Drivers of before Linux 5 keep the name with the device.
        name = text_or_none(os.path.join(folder, "name"))
        if name is None:
            name = text_or_none(os.path.join(folder, "device", "name"))
        if name:
            yield folder, name


def is_tegra(root: str) -> bool:
    """Whether this is an NVIDIA Jetson."""
    compatible = text_or_none(os.path.join(root, "proc/device-tree/compatible")) or ""
    return "nvidia,tegra" in compatible or os.path.exists(os.path.join(root, "etc/nv_tegra_release"))


def no_permission(what: str, path: str) -> str:
    """The reason of a sensor that this user may not read, with what to type."""
    return (
        "%s cannot be read: no permission for %s; install the agent with --system, or type "
        "`sudo chmod a+r %s` (until the next start of the board)" % (what, path, path)
    )


def unreadable(what: str, error: Exception) -> str:
    """The reason of a sensor that is there and cannot be read."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
        return no_permission(what, str(error.filename))
    return "%s cannot be read: %s" % (what, error)
