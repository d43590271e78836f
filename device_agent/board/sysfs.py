"""Reads numbers from sysfs, cheaply enough for many readings a second."""

from __future__ import annotations

import errno
import os
from typing import Iterator, List, Optional, Tuple

# More readings a second cost the board more than they are worth: INA chips average over milliseconds.
FASTEST_S = 0.02
_NUMBER_BYTES = 64


class Attribute:
    """One sysfs file that contains a number. The file stays open between readings.

    The kernel computes the value for every read at offset 0.

    Args:
        path: path of the file, which is opened at the first reading.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1

    def number(self) -> int:
        """The present value, in the unit of the file.

        Raises:
            OSError: the file cannot be read now; `filename` is set. The next reading opens the file again.
            ValueError: the file does not contain a number.
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
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def text(path: str) -> str:
    """The content of a file, without surrounding white space.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().strip("\0 \t\n")


def text_or_none(path: str) -> Optional[str]:
    """The content of a file, without surrounding white space; None if the file cannot be read."""
    try:
        return text(path)
    except OSError:
        return None


def number_or_none(path: str) -> Optional[int]:
    """The whole number in a file; None if there is none or the file cannot be read."""
    try:
        return int(text(path))
    except (OSError, ValueError):
        return None


def children(folder: str, start: str = "") -> List[str]:
    """The sorted paths in a folder whose names begin with `start`; [] if the folder does not exist."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in sorted(names) if name.startswith(start)]


def hwmon_chips(root: str) -> Iterator[Tuple[str, str]]:
    """Every hwmon folder with the name of its chip. The index of a folder may change at every boot."""
    for folder in children(os.path.join(root, "sys/class/hwmon"), "hwmon"):
        # Drivers before Linux 5 keep the name in the folder of the device.
        name = text_or_none(os.path.join(folder, "name"))
        if name is None:
            name = text_or_none(os.path.join(folder, "device", "name"))
        if name:
            yield folder, name


def is_tegra(root: str) -> bool:
    """Whether this machine is an NVIDIA Jetson."""
    compatible = text_or_none(os.path.join(root, "proc/device-tree/compatible")) or ""
    return "nvidia,tegra" in compatible or os.path.exists(os.path.join(root, "etc/nv_tegra_release"))


def no_permission(what: str, path: str) -> str:
    """The reason why this user may not read a sensor, with what to type."""
    return (
        "%s cannot be read: no permission for %s; install the agent with --system, or type "
        "`sudo chmod a+r %s` (until the next start of the board)" % (what, path, path)
    )


def unreadable(what: str, error: Exception) -> str:
    """The reason why a sensor that exists cannot be read."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
        return no_permission(what, str(error.filename))
    return "%s cannot be read: %s" % (what, error)
