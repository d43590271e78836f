"""Which power sensor a machine is measured by, and what is known of its board."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from device_agent.power.none import NoSensor
from device_agent.power.sensors import known_sensors

METER_FILE = "meter.json"


def choose(root: str = "/", board: Optional[Dict[str, Any]] = None) -> Any:
    """The best sensor that can be read on this machine, or the null sensor with the reason.

    Args:
        root: prefix of all system paths.
        board: facts of the board (`board_facts`): where it names `sensors`, no others are tried; a configured
            external `meter` comes before them.
    """
    facts = board or {}
    sensors = known_sensors()
    # Estimates and meters that somebody has to attach are never tried by themselves.
    by_themselves = [name for name, sensor in sensors.items() if sensor.order is not None]
    names: List[str] = [str(name) for name in facts.get("sensors", [])] or by_themselves
    if facts.get("meter"):
        # Whoever attached a meter wants it, and nothing else in its place.
        names = ["external"]
    reasons = []
    for name in names:
        if name not in sensors:
            reasons.append("no sensor is called %s (there are %s)" % (name, ", ".join(sensors)))
            continue
        sensor = sensors[name](root, board)
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
    """The fields of a sensor in a report: its description, and the reason where it cannot be read."""
    reason = sensor.probe()
    description = dict(sensor.describe(), unavailable=reason)
    sensor.close()
    return description
