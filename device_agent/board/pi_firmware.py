"""Queries the firmware of a Raspberry Pi through the kernel, without starting vcgencmd.

Property interface of the mailbox (github.com/raspberrypi/firmware, wiki "Mailbox property interface"): a
buffer of 32-bit words with its length, 0 for a request, and tags (id, bytes of the value, 0, the value), then
0. The kernel forwards the buffer by an ioctl of /dev/vcio, which is open to the group video. Tag 0x30046 is
what `vcgencmd get_throttled` prints. Tag 0x30080 is what vcgencmd itself uses (github.com/raspberrypi/utils):
its value is a word for an error and the text of the command, and the answer replaces that text.

Callers do not have to trust this interface: they compare its first answer with that of the program.
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
_COMMAND = 0x00030080
_COMMAND_BYTES = 1024
_ANSWERED = 0x80000000
# Indices of the code, of the answer's length, and of the value.
_CODE, _LENGTH, _VALUE = 1, 4, 5


class PiFirmware:
    """Queries the firmware.

    Args:
        root: prefix of all system paths.
        ioctl: `fcntl.ioctl`, or a replacement for tests.
    """

    def __init__(self, root: str = "/", ioctl: Callable[..., Any] = fcntl.ioctl) -> None:
        self._path = os.path.join(root, _DEVICE)
        self._ioctl = ioctl
        # None until the device has been looked for.
        self._usable: Optional[bool] = None

    def throttled(self) -> Optional[int]:
        """The flags of `vcgencmd get_throttled`; None if there is no mailbox, or none for this user."""
        words = self._asked(_GET_THROTTLED, array.array("I", [0]))
        return None if words is None else int(words[_VALUE])

    def output(self, command: str) -> Optional[str]:
        """The output of `vcgencmd` with a command; None if there is no mailbox, or none for this user."""
        value = array.array("I", bytes(4) + command.encode().ljust(_COMMAND_BYTES, b"\0"))
        words = self._asked(_COMMAND, value)
        # The first word says whether the firmware knows the command.
        if words is None or words[_VALUE] != 0:
            return None
        text = words[_VALUE + 1 :].tobytes().partition(b"\0")[0]
        return text.decode("utf-8", "replace")

    def refuse(self) -> None:
        """Stops all further queries, because an answer was wrong."""
        self._usable = False

    def _asked(self, tag: int, value: "array.array[int]") -> Optional["array.array[int]"]:
        if self._usable is None:
            self._usable = self._is_device()
        if not self._usable:
            return None
        # vcgencmd does not count the word for the error.
        length = _COMMAND_BYTES if tag == _COMMAND else 4 * len(value)
        words = array.array("I", [4 * (len(value) + 6), 0, tag, length, 0, *value, 0])
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._ioctl(descriptor, _PROPERTY, words, True)
            finally:
                os.close(descriptor)
        except OSError:
            self.refuse()
            return None
        # A firmware that does not know the tag does not change its length.
        if words[_CODE] != _ANSWERED or not words[_LENGTH] & _ANSWERED:
            self.refuse()
            return None
        return words

    def _is_device(self) -> bool:
        try:
            return stat.S_ISCHR(os.stat(self._path).st_mode)
        except OSError:
            return False
