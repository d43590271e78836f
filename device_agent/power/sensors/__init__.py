"""Power sensors, a file each: the `SENSORS` of the modules of this folder are found by listing it.

A sensor is a class whose instances take the prefix of all system paths and the facts of the board. It has

    name      by which boards and reports call it
    order     on a board that names no sensor, least first; None where it is never tried by itself
    quantity  "power", or "energy" for counters
    period_s  seconds between two readings
    probe     None where a reading succeeds here, else the reason and what to do
    read      one reading: watts, or energy counters, whose difference `joules` gives (None where unknown)
    describe  what the numbers mean
    close     lets files and programs go

A sensor that sends readings by itself has `take` beside `read`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Dict


def known_sensors() -> Dict[str, Any]:
    """The sensors of all modules of this folder by name, in the order in which they are tried."""
    found = [
        sensor
        for module in pkgutil.iter_modules(__path__)
        for sensor in importlib.import_module("%s.%s" % (__name__, module.name)).SENSORS
    ]
    found.sort(key=lambda sensor: (sensor.order is None, sensor.order or 0, sensor.name))
    return {sensor.name: sensor for sensor in found}
