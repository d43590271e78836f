"""Programs of the board's vendor that the agent asks: vcgencmd, nvpmodel."""

from __future__ import annotations

import os
import subprocess
from typing import Dict, List, Optional

_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "opt/vc/bin")
_LONGEST_S = 5.0


class CommandError(Exception):
    """A program is not there or fails; the message is one line."""


class Commands:
    """Runs programs of the board.

    Args:
        root: prefix of all system paths: tests put their own programs below it.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._found: Dict[str, Optional[str]] = {}

    def path(self, name: str) -> Optional[str]:
        """Where a program is, None if it is not installed."""
        if name not in self._found:
            places = (os.path.join(self._root, folder, name) for folder in _FOLDERS)
            self._found[name] = next((place for place in places if os.access(place, os.X_OK)), None)
        return self._found[name]

    def output(self, *words: str) -> str:
        """What a program prints.

        Raises:
            CommandError: it is not installed, fails, or takes too long.
        """
        program = self.path(words[0])
        if program is None:
            raise CommandError("%s is not installed" % words[0])
        command: List[str] = [program, *words[1:]]
        try:
            # Its errors come the same way: vcgencmd prints some of them on stdout.
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_LONGEST_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandError("%s fails: %s" % (" ".join(words), error)) from error
        text = result.stdout.decode("utf-8", "replace").strip("\0\n")
        if result.returncode != 0:
            raise CommandError("%s fails: %s" % (" ".join(words), " ".join(text.split()) or "no message"))
        return text
