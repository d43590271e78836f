"""Raspberry Pi 5: voltages and currents of its power chip, through the firmware.

`vcgencmd pmic_read_adc` (Raspberry Pi documentation, "vcgencmd") prints a line for each value; the
firmware gives the same listing without the program:

    VDD_CORE_A current(7)=10.87674000A
    VDD_CORE_V volt(15)=0.89745940V

The indices do not pair up; names do. EXT5V_V and BATT_V have no current and are no rails. What hangs on the
5 V rail (USB, HAT, NVMe, fan) is not seen.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

from device_agent.board.commands import CommandError, Commands
from device_agent.board.pi_firmware import PiFirmware

# Power at the wall from the sum of the rails: a linear fit to a USB-C meter on one board, 50 samples of 1 s
# at each point (github.com/jfikar/RPi5-power).
WALL_SLOPE = 1.1451
WALL_OFFSET_W = 0.5879

_COMMAND = ("vcgencmd", "pmic_read_adc")


class Adc(NamedTuple):
    """One listing.

    Attributes:
        watts: of each rail that has a voltage and a current.
        supply_v: voltage of the supply, None where it is not listed.
    """

    watts: Dict[str, float]
    supply_v: Optional[float]


def parse(text: str) -> Adc:
    """A listing of `pmic_read_adc`.

    Raises:
        ValueError: it has no rail with both values.
    """
    amperes: Dict[str, float] = {}
    volts: Dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        number = value.partition("=")[2]
        if name.endswith("_A") and number.endswith("A"):
            amperes[name[:-2]] = float(number[:-1])
        elif name.endswith("_V") and number.endswith("V"):
            volts[name[:-2]] = float(number[:-1])
    watts = {name: volts[name] * current for name, current in amperes.items() if name in volts}
    if not watts:
        raise ValueError("no rail with voltage and current in %r" % text[:80])
    return Adc(watts, volts.get("EXT5V"))


class Rpi5Pmic:
    """The sum of the power chip's rails.

    Args:
        root: prefix of all system paths.
        board: facts of the board; the rails need none.
    """

    name = "rpi5_pmic"
    order: Optional[int] = 30
    quantity = "power"
    # Each reading asks the firmware, which renews its values slowly, and may start a program for it: faster
    # costs the board what is to be measured.
    period_s = 0.2

    def __init__(self, root: str = "/", board: Optional[Dict[str, Any]] = None) -> None:
        self._commands = Commands(root)
        self._firmware = PiFirmware(root)
        self._direct = False
        self._rails: List[str] = []
        self._supply_v: Optional[float] = None

    def probe(self) -> Optional[str]:
        """None where the power chip answers, else why not and what to do."""
        if self._commands.path(_COMMAND[0]) is None:
            return "no vcgencmd (on a Raspberry Pi: type `sudo apt install raspi-utils`)"
        try:
            text = self._commands.output(*_COMMAND)
        except CommandError as error:
            return (
                "the power chip cannot be read: %s; if this user may not use the firmware's device, type "
                "`sudo usermod -aG video $USER` and log in again" % error
            )
        if "not registered" in text:
            return "no power chip: this Raspberry Pi has no power sensor; attach an external meter"
        try:
            adc = parse(text)
        except ValueError as error:
            return "the power chip cannot be read: %s" % error
        self._rails, self._supply_v = sorted(adc.watts), adc.supply_v
        self._direct = self._firmware_agrees()
        return None

    def _firmware_agrees(self) -> bool:
        """Whether the firmware lists the same rails without the program: then it need not be started."""
        text = self._firmware.output(_COMMAND[1])
        try:
            return text is not None and sorted(parse(text).watts) == self._rails
        except ValueError:
            return False

    def _listing(self) -> str:
        text = self._firmware.output(_COMMAND[1]) if self._direct else None
        return self._commands.output(*_COMMAND) if text is None else text

    def read(self) -> float:
        """Watts of all rails.

        Raises:
            OSError: the firmware did not answer, or not with all rails.
            ValueError: it answered with something else.
        """
        try:
            adc = parse(self._listing())
        except CommandError as error:
            raise OSError(str(error)) from error
        if len(adc.watts) != len(self._rails):
            raise OSError("%d rails in place of %d" % (len(adc.watts), len(self._rails)))
        self._supply_v = adc.supply_v
        return sum(adc.watts.values())

    def describe(self) -> Dict[str, Any]:
        """The rails of the power chip, and the voltage of the supply as it was read last."""
        return {
            "kind": "measured",
            "source": self.name,
            "quantity": self.quantity,
            "rails": list(self._rails),
            "boundary": "pmic-rails",
            "period_s": self.period_s,
            "supply_v": self._supply_v,
        }

    def close(self) -> None:
        """Nothing is open."""


class Rpi5Wall(Rpi5Pmic):
    """Power at the wall, estimated from the rails: not measured, and never called so."""

    name = "rpi5_wall"
    order = None

    def read(self) -> float:
        """Watts at the wall.

        Raises:
            OSError: as Rpi5Pmic.
        """
        return WALL_SLOPE * super().read() + WALL_OFFSET_W

    def describe(self) -> Dict[str, Any]:
        """The same rails, by a formula with constants of another board."""
        accuracy = "%g x rails + %g W, fitted on one board" % (WALL_SLOPE, WALL_OFFSET_W)
        return dict(super().describe(), kind="estimated", boundary="wall", accuracy=accuracy)


SENSORS = (Rpi5Pmic, Rpi5Wall)
