"""Power modes of Jetson boards, through NVIDIA's nvpmodel program.

Jetson Linux Developer Guide, "Supported Modes and Power Efficiency": `nvpmodel -q` prints the present mode
as two lines, `NV Power Mode: NAME` and the mode's number, after warnings that begin with NVPM. `nvpmodel -m
ID` sets a mode; it needs root, and the mode survives restarts. /etc/nvpmodel.conf defines the modes in lines
`< POWER_MODEL ID=0 NAME=MAXN >`. Modes that power parts of the GPU differently take effect only after a
restart. The program then asks whether to restart; its input is empty, so that it does not.
"""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple, Optional, Sequence

from device_agent.board.commands import CommandError, one_line, run
from device_agent.errors import AgentError

_PLACES = ("usr/sbin/nvpmodel", "usr/bin/nvpmodel")
_CONFIGURATION = "etc/nvpmodel.conf"
_LIMIT_S = 60.0
_REBOOT = "reboot required"


class Mode(NamedTuple):
    """One mode: its number and name."""

    number: int
    name: str


class NvpModel:
    """The nvpmodel program of one machine.

    Args:
        root: prefix of all system paths.
        elevate: command that runs another command as root; () if this process needs no such command.
    """

    def __init__(self, root: str, elevate: Sequence[str]) -> None:
        self._root = root
        self._elevate = list(elevate)
        places = [os.path.join(root, place) for place in _PLACES]
        self._program = next((place for place in places if os.path.exists(place)), None)

    @property
    def present(self) -> bool:
        """Whether the program is installed."""
        return self._program is not None

    def modes(self) -> List[Mode]:
        """All modes that the board defines, in the board's order."""
        try:
            with open(os.path.join(self._root, _CONFIGURATION), encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            text = ""
        found = re.findall(r"^<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=([^\s>]+)\s*>", text, re.MULTILINE)
        return [Mode(int(number), name) for number, name in found]

    def current(self) -> Mode:
        """The present mode.

        Raises:
            AgentError: the program does not name the mode.
        """
        text = self._run([str(self._program), "-q"])
        match = re.search(r"NV Power Mode:\s*(\S+)\s*\n\s*(\d+)\s*$", text, re.MULTILINE)
        if not match:
            raise AgentError("modes", "nvpmodel -q does not name a mode: %s" % one_line(text))
        return Mode(int(match.group(2)), match.group(1))

    def refusal(self) -> Optional[str]:
        """The reason why the agent may not set modes, with what to type; None if it may."""
        if not self._elevate:
            return None
        try:
            self._run([*self._elevate, "-l", str(self._program), "-m", "0"])
        except AgentError as error:
            if "no new privileges" in str(error).lower():
                return (
                    "the agent's unit keeps it from sudo; install it from the host with: "
                    "sdk devices install-agent NAME --power-modes"
                )
            return (
                'only root sets power modes; on the device type: echo "$USER ALL=(root) NOPASSWD: '
                '/usr/sbin/nvpmodel" | sudo tee /etc/sudoers.d/edgetlm'
            )
        return None

    def set(self, mode: Mode) -> None:
        """Switches the board to a mode.

        Raises:
            AgentError: the board is not in this mode afterwards; the message says why and what to type.
        """
        output = ""
        try:
            output = self._run([*self._elevate, str(self._program), "-m", str(mode.number)])
        except AgentError as error:
            if self._elevate and self.refusal():
                raise AgentError("modes", str(self.refusal())) from error
            output = str(error)
        if self.current().number == mode.number:
            return
        if _REBOOT in output.lower():
            raise AgentError(
                "modes",
                "power mode %s takes effect after a restart only; on the device type: sudo nvpmodel -m %d"
                % (mode.name, mode.number),
            )
        raise AgentError("modes", "nvpmodel does not set %s: %s" % (mode.name, one_line(output)))

    def _run(self, command: Sequence[str]) -> str:
        try:
            return run(command, _LIMIT_S)
        except CommandError as error:
            raise AgentError("modes", str(error)) from error
