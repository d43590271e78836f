"""Runs the programs of the board's vendor: vcgencmd, nvpmodel."""

from __future__ import annotations

import os
import subprocess
from typing import Dict, Optional, Sequence

_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "opt/vc/bin")
_LONGEST_S = 5.0


class CommandError(Exception):
    """A program is not installed or fails; the message is one line."""


class Commands:
    """Runs programs of the board.

    Args:
        root: prefix of all system paths, so that tests can provide their own programs.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._found: Dict[str, Optional[str]] = {}

    def path(self, name: str) -> Optional[str]:
        """The path of a program; None if it is not installed."""
        if name not in self._found:
            places = (os.path.join(self._root, folder, name) for folder in _FOLDERS)
            self._found[name] = next((place for place in places if os.access(place, os.X_OK)), None)
        return self._found[name]

    def output(self, *words: str) -> str:
        """The output of a program.

        Raises:
            CommandError: the program is not installed, fails, or takes too long.
        """
        program = self.path(words[0])
        if program is None:
            raise CommandError("%s is not installed" % words[0])
        return run([program, *words[1:]]).strip("\0\n")


def run(command: Sequence[str], limit_s: float = _LONGEST_S) -> str:
    """The output of a program, with its errors, because vcgencmd prints some of them on stdout.

    Raises:
        CommandError: the program fails or takes too long.
    """
    name = " ".join([os.path.basename(command[0]), *command[1:]])
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError("%s fails: %s" % (name, error)) from error
    text = result.stdout.decode("utf-8", "replace")
    if result.returncode != 0:
        raise CommandError("%s fails: %s" % (name, one_line(text)))
    return text


def one_line(text: str) -> str:
    """The output of a program as one short line, for a message."""
    return " ".join(text.split()).strip("\0")[:300] or "no message"
