"""Power sensors: one file each, with the operations probe, read and describe.

`probe` says whether the sensor can be read here, by reading it; `read` gives one reading; `describe` says
what the numbers mean. A new sensor is one file and one entry in `choose`.
"""

from __future__ import annotations

from typing import Any, Dict

from device_agent.power.none import NoSensor
from device_agent.power.rapl import Rapl


def choose(root: str = "/") -> Any:
    """The best sensor that can be read on this machine, or the null sensor with the reason.

    Args:
        root: prefix of all system paths.
    """
    rapl = Rapl(root)
    reason = rapl.probe()
    return rapl if reason is None else NoSensor(reason)


def summary(sensor: Any) -> Dict[str, Any]:
    """What a report says of a sensor: its description and why it cannot be read, if so."""
    return dict(sensor.describe(), unavailable=sensor.probe())
