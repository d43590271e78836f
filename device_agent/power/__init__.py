"""Power sensors: one file each, with the operations probe, read and describe.

`probe` says whether the sensor can be read here, by reading it; `read` gives one reading: watts, or energy
counters, whose difference `joules` gives (None where it is not known); `describe` says what the numbers mean;
`close` lets files and programs go. A sensor that sends readings by itself has `take` beside `read`. A new
sensor is one file and one entry in `SENSORS`.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, Optional

from device_agent.power.external import External
from device_agent.power.hwmon import Hwmon
from device_agent.power.ina238 import Ina238
from device_agent.power.ina3221 import Ina3221
from device_agent.power.none import NoSensor
from device_agent.power.nvml import Nvml
from device_agent.power.rapl import Rapl
from device_agent.power.rpi5_pmic import Rpi5Pmic, Rpi5Wall

# By name, in the order in which they are tried on a board that names none. The estimate is never tried by
# itself.
SENSORS: Dict[str, Callable[[str, Optional[Dict[str, Any]]], Any]] = {
    "ina238": Ina238,
    "ina3221": Ina3221,
    "rpi5_pmic": Rpi5Pmic,
    "rapl": Rapl,
    "hwmon": Hwmon,
    "nvml": Nvml,
    "external": External,
    "rpi5_wall": Rpi5Wall,
}
_BY_ITSELF = ("ina238", "ina3221", "rpi5_pmic", "rapl", "hwmon", "nvml")
METER_FILE = "meter.json"


def choose(root: str = "/", board: Optional[Dict[str, Any]] = None) -> Any:
    """The best sensor that can be read on this machine, or the null sensor with the reason.

    Args:
        root: prefix of all system paths.
        board: facts of the board (`board_facts`): where it names `sensors`, no others are tried; a configured
            external `meter` comes before them.
    """
    facts = board or {}
    names: List[str] = [str(name) for name in facts.get("sensors", [])] or list(_BY_ITSELF)
    if facts.get("meter"):
        # Whoever attached a meter wants it, and nothing else in its place.
        names = ["external"]
    reasons = []
    for name in names:
        if name not in SENSORS:
            reasons.append("no sensor is called %s (there are %s)" % (name, ", ".join(SENSORS)))
            continue
        sensor = SENSORS[name](root, board)
        reason = sensor.probe()
        if reason is None:
            return sensor
        sensor.close()
        reasons.append(reason)
    return NoSensor(_explained(reasons))


def _explained(reasons: List[str]) -> str:
    """One reason: of sensors that are there and cannot be read, else that none is there."""
    there = [reason for reason in reasons if not reason.startswith("no ")]
    if there:
        return "; ".join(there)
    if len(reasons) == 1:
        return reasons[0]
    absent = ", ".join(reason.partition(":")[0].partition(" (")[0] for reason in reasons)
    return "this machine has no power sensor (%s); an external meter can be attached (docs/power.md)" % absent


def board_facts(path: Optional[str]) -> Optional[Dict[str, Any]]:
    """Facts of the board out of board.json, with the external meter of meter.json beside it.

    Args:
        path: of board.json; None where the host sent none.

    Raises:
        ValueError: one of the files is damaged.
    """
    if path is None:
        return None
    facts: Dict[str, Any] = {}
    meter_path = os.path.join(os.path.dirname(os.path.abspath(path)), METER_FILE)
    for name, key in ((path, None), (meter_path, "meter")):
        try:
            with open(name, encoding="utf-8") as file:
                content = json.load(file)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ValueError("%s cannot be read (%s); write it again" % (name, error)) from error
        if not isinstance(content, dict):
            raise ValueError("%s holds no JSON object; write it again" % name)
        facts.update(content if key is None else {key: content})
    return facts or None


def summary(sensor: Any) -> Dict[str, Any]:
    """What a report says of a sensor: its description and why it cannot be read, if so."""
    reason = sensor.probe()
    description = dict(sensor.describe(), unavailable=reason)
    sensor.close()
    return description
