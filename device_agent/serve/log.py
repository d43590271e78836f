"""The agent's log: clients, sessions and how they ended. It never has a secret."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Optional

from device_agent.contract.text import printable

_LINE_CHARACTERS = 2000
LIMIT_BYTES = 1 << 20


class Log:
    """Messages with the time of day, to a file of limited size or to stderr.

    One older file is kept beside it (`.1`). With a file, everything that the process prints goes there too.

    Args:
        path: of the file, None for stderr (which systemd stores in its journal).
        quiet: write nothing, because the host that started this agent uses its stderr for errors.
        limit_bytes: size at which a new file begins.
    """

    def __init__(self, path: Optional[str], quiet: bool = False, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path = path
        self._quiet = quiet and path is None
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Redirects the output of this process to the file, if there is one.

        Raises:
            OSError: the file cannot be opened.
        """
        if self._path is not None:
            self._redirect(self._path)

    def write(self, text: str) -> None:
        """Writes one message with any characters; a message that does not fit on the disk is dropped."""
        if self._quiet:
            return
        shown = printable(text, _LINE_CHARACTERS)
        line = ("%s %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S"), shown)).encode("utf-8", "backslashreplace")
        with self._lock:
            try:
                if self._path is not None and os.fstat(2).st_size + len(line) > self._limit_bytes:
                    os.replace(self._path, self._path + ".1")
                    self._redirect(self._path)
                os.write(2, line)
            except OSError:
                return

    @staticmethod
    def _redirect(path: str) -> None:
        sys.stdout.flush()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for standard in (1, 2):
                os.dup2(descriptor, standard)
        finally:
            os.close(descriptor)
