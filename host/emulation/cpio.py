"""Archives that the Linux kernel unpacks as its first root file system (cpio "newc").

Layout: Documentation/driver-api/early-userspace/buffer-format.rst in the Linux sources.
"""

from __future__ import annotations

import stat
from types import TracebackType
from typing import IO

_MAGIC = "070701"
_END = "TRAILER!!!"


class CpioWriter:
    """Writes one archive; a context manager.

    Args:
        output: binary stream.
    """

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._number = 0
        self._written = 0

    def folder(self, name: str, mode: int = 0o755, owner: int = 0) -> None:
        """A folder; its parents come before it."""
        self._entry(name, stat.S_IFDIR | mode, b"", owner)

    def file(self, name: str, content: bytes, mode: int = 0o644, owner: int = 0) -> None:
        """Add a file with these permissions."""
        self._entry(name, stat.S_IFREG | mode, content, owner)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link that points to `target`."""
        self._entry(name, stat.S_IFLNK | 0o777, target.encode(), 0)

    def device(self, name: str, mode: int, major: int, minor: int) -> None:
        """Add a character device with these numbers."""
        self._entry(name, stat.S_IFCHR | mode, b"", 0, major, minor)

    def _entry(
        self, name: str, mode: int, content: bytes, owner: int, major: int = 0, minor: int = 0
    ) -> None:
        self._number += 1
        raw = name.encode() + b"\0"
        # Inode, mode, owner, group, links, time, size, device, device of the entry, length, checksum.
        fields = [self._number, mode, owner, owner, 1, 0, len(content), 0, 0, major, minor, len(raw), 0]
        self._put(_MAGIC.encode() + b"".join(b"%08x" % field for field in fields) + raw)
        self._put(content)

    def _put(self, data: bytes) -> None:
        padding = -(self._written + len(data)) % 4
        self._output.write(data + b"\0" * padding)
        self._written += len(data) + padding

    def __enter__(self) -> CpioWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._entry(_END, 0, b"", 0)
