"""Rails of a Jetson: INA3221 chips, in the layouts of JetPack 4 and of JetPack 5 and later.

JetPack 5, 6: hwmon (Linux, Documentation/hwmon/ina3221.rst): `in[123]_label`, `in[123]_input` in mV,
`curr[123]_input` in mA, `in[123]_enable`. in4 to in6 are shunt voltages, in7 and curr4 are sums: none is a
rail.
JetPack 4: iio (NVIDIA Tegra Linux Driver Package Development Guide, release 32, "Power Monitor"):
`rail_name_N`, `in_powerN_input` in mW, N from 0 to 2.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional

from device_agent.board import sysfs
from device_agent.board.sysfs import Attribute
from device_agent.power.rails import Total, total_of

_DRIVERS = "sys/bus/i2c/drivers"
_CHANNELS = (1, 2, 3)


class _Rail(NamedTuple):
    """One channel: factors whose product is its power, and the watts of one unit of that product."""

    name: str
    factors: List[Attribute]
    unit_w: float

    def watts(self) -> float:
        product = 1
        for factor in self.factors:
            product *= factor.number()
        return product * self.unit_w


class Ina3221:
    """The supply rails of one Jetson.

    Args:
        root: prefix of all system paths.
        board: facts of the board, which may name the rails of the total.
    """

    name = "ina3221"
    order = 20
    quantity = "power"

    def __init__(self, root: str = "/", board: Optional[Dict[str, Any]] = None) -> None:
        self._root = root
        self._board = board
        self._total: List[_Rail] = []
        self._parts: List[str] = []
        self._boundary = ""
        self._chips: List[Dict[str, Any]] = []
        self.period_s = sysfs.FASTEST_S

    def probe(self) -> Optional[str]:
        """None where the rails can be read, else why not and what to do."""
        self._chips = []
        rails = self._hwmon_rails() + self._iio_rails()
        if not self._chips:
            return "no INA3221: neither %s has it nor any hwmon folder" % os.path.join(self._root, _DRIVERS)
        try:
            total: Total = total_of([rail.name for rail in rails], self._board)
        except ValueError as error:
            return "INA3221 cannot be used: %s" % error
        by_name = {rail.name: rail for rail in rails}
        self._total = [by_name[name] for name in total.rails]
        self._parts = [rail.name for rail in rails if rail.name not in total.rails]
        self._boundary = total.boundary
        intervals = [chip["update_interval_ms"] for chip in self._chips if chip.get("update_interval_ms")]
        self.period_s = max([sysfs.FASTEST_S] + [interval / 1000.0 for interval in intervals])
        return self._first_reading()

    def _first_reading(self) -> Optional[str]:
        failure: Optional[Exception] = None
        # Single readings fail now and then, so one failure does not count yet.
        for _ in range(3):
            try:
                self.read()
                return None
            except (OSError, ValueError) as error:
                failure = error
        assert failure is not None
        return sysfs.unreadable("INA3221", failure)

    def _hwmon_rails(self) -> List[_Rail]:
        folders = []
        for chip in sysfs.children(os.path.join(self._root, _DRIVERS, "ina3221")):
            folders += sysfs.children(os.path.join(chip, "hwmon"), "hwmon")
        if not folders:
            folders = [folder for folder, name in sysfs.hwmon_chips(self._root) if name == "ina3221"]
        rails = []
        for folder in folders:
            self._chips.append(
                {
                    "samples": sysfs.number_or_none(os.path.join(folder, "samples")),
                    "update_interval_ms": sysfs.number_or_none(os.path.join(folder, "update_interval")),
                }
            )
            for channel in _CHANNELS:
                name = sysfs.text_or_none(os.path.join(folder, "in%d_label" % channel))
                off = sysfs.number_or_none(os.path.join(folder, "in%d_enable" % channel)) == 0
                if connected(name) and not off:
                    volts = Attribute(os.path.join(folder, "in%d_input" % channel))
                    amperes = Attribute(os.path.join(folder, "curr%d_input" % channel))
                    rails.append(_Rail(str(name), [volts, amperes], 1e-6))
        return rails

    def _iio_rails(self) -> List[_Rail]:
        rails = []
        for chip in sysfs.children(os.path.join(self._root, _DRIVERS, "ina3221x")):
            for folder in sysfs.children(chip, "iio:device"):
                self._chips.append({})
                for channel in range(3):
                    name = sysfs.text_or_none(os.path.join(folder, "rail_name_%d" % channel))
                    if connected(name):
                        power = Attribute(os.path.join(folder, "in_power%d_input" % channel))
                        rails.append(_Rail(str(name), [power], 1e-3))
        return rails

    def read(self) -> float:
        """Watts of the total.

        Raises:
            OSError: a rail cannot be read now.
        """
        return sum([rail.watts() for rail in self._total])

    def describe(self) -> Dict[str, Any]:
        """The rails that are summed, and those that are parts of them."""
        return {
            "kind": "measured",
            "source": self.name,
            "quantity": self.quantity,
            "rails": [rail.name for rail in self._total],
            "parts": list(self._parts),
            "boundary": self._boundary,
            "period_s": self.period_s,
            "chips": list(self._chips),
        }

    def close(self) -> None:
        """Closes the files."""
        for rail in self._total:
            for factor in rail.factors:
                factor.close()


def connected(name: Optional[str]) -> bool:
    """Whether a channel's label names a rail: unconnected ones are called NC."""
    words = str(name or "").upper().replace("-", " ").replace("_", " ").split()
    return bool(words) and "NC" not in words


SENSORS = (Ina3221,)
