"""The input of a Jetson Thor: an INA238, whose driver gives power itself.

Linux, Documentation/hwmon/ina238.rst: `power1_input` in uW. It sits at the carrier's input and sees whatever
is wired behind it. USB-C supplies below /sys/class/power_supply (`ucsi-source-psy-*`) are not what the board
takes, and are not looked at.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from device_agent.board import sysfs
from device_agent.board.sysfs import Attribute
from device_agent.power.rails import total_of

# The chip has no label of its own; the developer guide calls what it measures VIN.
_UNLABELLED = "VIN"


class Ina238:
    """Power at the input of the carrier board.

    Args:
        root: prefix of all system paths.
        board: facts of the board, which may name the rail.
    """

    name = "ina238"
    order = 10
    quantity = "power"

    def __init__(self, root: str = "/", board: Optional[Dict[str, Any]] = None) -> None:
        self._root = root
        self._board = board
        self._total: List[Tuple[str, Attribute]] = []
        self._boundary = ""
        self.period_s = sysfs.FASTEST_S

    def probe(self) -> Optional[str]:
        """None where it can be read, else why not and what to do."""
        found: List[Tuple[str, Attribute]] = []
        for folder, chip in sysfs.hwmon_chips(self._root):
            if chip == "ina238":
                labels = (os.path.join(folder, name) for name in ("label", "power1_label"))
                name = next((text for text in map(sysfs.text_or_none, labels) if text), _UNLABELLED)
                found.append((name, Attribute(os.path.join(folder, "power1_input"))))
        if not found:
            return "no INA238: no hwmon folder has that name"
        try:
            total = total_of([name for name, _ in found], self._board)
            self._total = [pair for pair in found if pair[0] in total.rails]
            self._boundary = total.boundary
        except ValueError as error:
            return "INA238 cannot be used: %s" % error
        try:
            self.read()
        except (OSError, ValueError) as error:
            return sysfs.unreadable("INA238", error)
        return None

    def read(self) -> float:
        """Watts.

        Raises:
            OSError: the chip cannot be read now.
        """
        return sum([attribute.number() for _, attribute in self._total]) * 1e-6

    def describe(self) -> Dict[str, Any]:
        """The fields of the sensor on the board's input rail."""
        return {
            "kind": "measured",
            "source": self.name,
            "quantity": self.quantity,
            "rails": [name for name, _ in self._total],
            "boundary": self._boundary,
            "period_s": self.period_s,
        }

    def close(self) -> None:
        """Closes the files."""
        for _, attribute in self._total:
            attribute.close()


SENSORS = (Ina238,)
