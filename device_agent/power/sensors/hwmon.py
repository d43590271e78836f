"""Any other power chip that the kernel's hwmon interface shows: known names only, best quantity first.

Linux, Documentation/hwmon/sysfs-interface.rst: `energyN_input` in uJ, `powerN_average` and `powerN_input` in
uW,
`inN_input` in mV, `currN_input` in mA. Chips: Documentation/hwmon/{ina2xx,ina238,ltc2947,ltc4282}.rst.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional

from device_agent.board import sysfs
from device_agent.board.sysfs import Attribute
from device_agent.power.rails import total_of

# ina3221 and ina238 have files of their own. In all of these, voltage 1 and current 1 are of one rail.
CHIPS = (
    "ina219",
    "ina220",
    "ina226",
    "ina228",
    "ina230",
    "ina231",
    "ina233",
    "ina234",
    "ina237",
    "ina260",
    "ltc2947",
    "ltc4282",
    "sq52206",
)
_DIGITS = "0123456789"


class _Rail(NamedTuple):
    """Where one rail's energy or power is read."""

    name: str
    energy: Optional[Attribute]
    power: List[Attribute]

    def watts(self) -> float:
        # Microwatts, or millivolts times milliamperes.
        product = 1
        for factor in self.power:
            product *= factor.number()
        return product * 1e-6


class Hwmon:
    """Rails of known power chips.

    Energy counters have no file that says where they wrap: an interval in which one falls is discarded.

    Args:
        root: prefix of all system paths.
        board: facts of the board: `rails` names those to sum, which is needed where there are several.
    """

    name = "hwmon"
    order = 50

    def __init__(self, root: str = "/", board: Optional[Dict[str, Any]] = None) -> None:
        self._root = root
        self._board = board
        self._rails: List[_Rail] = []
        self._parts: List[str] = []
        self._boundary = "rail"
        self.quantity = "power"
        self.period_s = sysfs.FASTEST_S

    def probe(self) -> Optional[str]:
        """None where the rails can be read, else why not and what to do."""
        found: List[_Rail] = []
        intervals = [0]
        for folder, chip in sysfs.hwmon_chips(self._root):
            if chip in CHIPS:
                found += _rails(folder, chip)
                intervals.append(sysfs.number_or_none(os.path.join(folder, "update_interval")) or 0)
        if not found:
            return "no hwmon power chip: none of %s is there" % ", ".join(CHIPS)
        reason = self._pick(found)
        if reason:
            return "hwmon cannot be used: %s" % reason
        self.period_s = max(sysfs.FASTEST_S, max(intervals) / 1000.0)
        try:
            self.read()
        except (OSError, ValueError) as error:
            return sysfs.unreadable("hwmon", error)
        return None

    def _pick(self, found: List[_Rail]) -> Optional[str]:
        names = [rail.name for rail in found]
        declared = (self._board or {}).get("rails")
        self._rails = found
        if len(found) > 1 or declared:
            try:
                total = total_of(names, self._board)
            except ValueError as error:
                return str(error)
            self._rails = [rail for rail in found if rail.name in total.rails]
            self._boundary = total.boundary
        else:
            self._boundary = str((self._board or {}).get("boundary") or "rail")
        self._parts = [name for name in names if name not in [rail.name for rail in self._rails]]
        if all(rail.energy for rail in self._rails):
            self.quantity = "energy"
        elif all(rail.power for rail in self._rails):
            self.quantity = "power"
        else:
            return "some of the rails %s count energy only, others power only" % ", ".join(names)
        return None

    def read(self) -> Any:
        """Watts, or the energy counters in microjoules.

        Raises:
            OSError: a rail cannot be read now.
        """
        if self.quantity == "energy":
            return [rail.energy.number() for rail in self._rails if rail.energy]
        return sum([rail.watts() for rail in self._rails])

    def joules(self, before: List[int], after: List[int]) -> Optional[float]:
        """Energy between two readings of counters; None where one fell."""
        if any(new < old for old, new in zip(before, after)):
            return None
        return (sum(after) - sum(before)) * 1e-6

    def describe(self) -> Dict[str, Any]:
        """The rails that are summed."""
        return {
            "kind": "measured",
            "source": self.name,
            "quantity": self.quantity,
            "rails": [rail.name for rail in self._rails],
            "parts": list(self._parts),
            "boundary": self._boundary,
            "period_s": self.period_s,
        }

    def close(self) -> None:
        """Closes the files."""
        for rail in self._rails:
            for attribute in [*rail.power, *([rail.energy] if rail.energy else [])]:
                attribute.close()


def _rails(folder: str, chip: str) -> List[_Rail]:
    try:
        names = set(os.listdir(folder))
    except OSError:
        return []
    rails = []
    for index in sorted({_index(name) for name in names} - {0}):
        energy = "energy%d_input" % index
        power = [[file] for file in ("power%d_average" % index, "power%d_input" % index) if file in names] + [
            _voltage_and_current(folder, names, index)
        ]
        best: List[str] = next((files for files in power if files), [])
        if energy not in names and not best:
            continue
        labels = ["energy%d_label", "power%d_label", "curr%d_label", "in%d_label"]
        texts = [sysfs.text_or_none(os.path.join(folder, label % index)) for label in labels]
        # The label of a whole chip names its only rail.
        texts.append(sysfs.text_or_none(os.path.join(folder, "label")) if index == 1 else None)
        name = next((text for text in texts if text), "%s.%d" % (chip, index))
        rails.append(
            _Rail(
                name,
                Attribute(os.path.join(folder, energy)) if energy in names else None,
                [Attribute(os.path.join(folder, file)) for file in best],
            )
        )
    return rails


def _index(file: str) -> int:
    """N of energyN_input, powerN_input, powerN_average or currN_input; 0 for other files."""
    kind, _, suffix = file.partition("_")
    stem = kind.rstrip(_DIGITS)
    if stem not in ("energy", "power", "curr") or suffix not in ("input", "average"):
        return 0
    return int(kind[len(stem) :] or 0)


def _voltage_and_current(folder: str, names: Any, index: int) -> List[str]:
    """Files of a rail's voltage and current: by label where there are any, else by index."""
    current = "curr%d_input" % index
    if current not in names:
        return []
    label = sysfs.text_or_none(os.path.join(folder, "curr%d_label" % index))
    if label:
        for name in sorted(names):
            matches = name.startswith("in") and name.endswith("_label")
            if matches and sysfs.text_or_none(os.path.join(folder, name)) == label:
                return [name.replace("_label", "_input"), current]
        return []
    voltage = "in%d_input" % index
    return [voltage, current] if voltage in names else []


SENSORS = (Hwmon,)
