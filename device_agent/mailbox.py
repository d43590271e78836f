"""The firmware of a Raspberry Pi, asked through the kernel, without starting vcgencmd for it.

Property interface of the mailbox (github.com/raspberrypi/firmware, wiki "Mailbox property interface"): a
buffer of 32-bit words with its length, 0 for a request, and tags: id, bytes of the value, 0, the value; then
0. The kernel passes it on by an ioctl of /dev/vcio, which is open to the group video. Tag 0x30046 is what
`vcgencmd get_throttled` prints.
"""

from __future__ import annotations

import array
import fcntl
import os
import stat
from typing import Any, Callable, Optional

_DEVICE = "dev/vcio"
# _IOWR(100, 0, char *) of Linux on machines with 64-bit pointers.
_PROPERTY = 0xC0086400
_GET_THROTTLED = 0x00030046
_SUCCESS = 0x80000000
_ANSWERED = 0x80000000
# Place of the value, and of what tells an answer from the request.
_CODE, _LENGTH, _VALUE = 1, 4, 5


class Mailbox:
    """Asks the firmware.

    Args:
        root: prefix of all system paths.
        ioctl: of fcntl.
    """

    def __init__(self, root: str = "/", ioctl: Callable[..., Any] = fcntl.ioctl) -> None:
        self._path = os.path.join(root, _DEVICE)
        self._ioctl = ioctl
        # None until the device was looked for.
        self._usable: Optional[bool] = None

    def throttled(self) -> Optional[int]:
        """The flags of `vcgencmd get_throttled`; None where this machine or this user has no mailbox."""
        if self._usable is None:
            self._usable = self._is_device()
        if not self._usable:
            return None
        words = array.array("I", [7 * 4, 0, _GET_THROTTLED, 4, 0, 0, 0])
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._ioctl(descriptor, _PROPERTY, words, True)
            finally:
                os.close(descriptor)
        except OSError:
            self._usable = False
            return None
        # A firmware that does not know the tag leaves it as it was.
        answered = words[_CODE] == _SUCCESS and words[_LENGTH] & _ANSWERED
        self._usable = bool(answered)
        return int(words[_VALUE]) if answered else None

    def _is_device(self) -> bool:
        try:
            return stat.S_ISCHR(os.stat(self._path).st_mode)
        except OSError:
            return False
