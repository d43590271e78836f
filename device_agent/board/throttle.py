"""Causes that slow a board down by themselves: heat, a weak supply, current limits.

The module reads raw flags by name, before, during and after a measurement, and gives a verdict on them:

- `get_throttled`: the firmware of a Raspberry Pi (documentation of vcgencmd), read without that program if
  this user may. Bits 0 to 3 say that under-voltage, a capped frequency, throttling or the soft temperature
  limit is active now; bits 16 to 19 say that it has happened since the start. The latter stay set, so only a
  change of them is evidence.
- `core_throttle_count`: x86 (Linux, Documentation/admin-guide/pm and arch/x86/.../therm_throt.c), counted
  since the start.
- `oc*_event_cnt`: over-current events of a Jetson Orin or Thor (Jetson Linux Developer Guide, "Electrical
  Management"; driver soctherm_oc). The first counts under-voltage, the others over-current.
- `curr*_alarm`: limits of INA3221 (Documentation/hwmon/ina3221.rst).
- cooling devices of frequencies (Documentation/driver-api/thermal/sysfs-api.rst): a state above 0 limits a
  clock.
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from device_agent.board import sysfs
from device_agent.board.commands import CommandError, Commands
from device_agent.board.pi_firmware import PiFirmware

FIRMWARE = "get_throttled"
CORES = "core_throttle_count"
_FIRMWARE_BITS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")
_SINCE_START = 16
# Words in the types of those cooling devices that limit clocks. Fans cool without slowing anything down, and
# other devices (TCC Offset, hot-surface alerts) are settings or notices.
_SLOWING = ("cpufreq", "devfreq", "Processor", "throttle")
_OVER_CURRENT = "soctherm_oc"

Flags = Dict[str, int]


class Verdict(NamedTuple):
    """The verdict on the flags of one measurement.

    Attributes:
        throttled: whether the board was slowed down.
        reasons: the causes.
        invalid: why the measurement is invalid (the supply is too weak), or "".
    """

    throttled: bool
    reasons: Tuple[str, ...]
    invalid: str


class Throttle:
    """The flags of one machine.

    Args:
        root: prefix of all system paths.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._commands = Commands(root)
        self._pi_firmware = PiFirmware(root)
        self._files: Optional[List[Tuple[str, sysfs.Attribute]]] = None
        # None until the firmware has been asked for the first time.
        self._firmware: Optional[bool] = None

    def flags(self) -> Flags:
        """The present flags. Flags that cannot be read are left out."""
        if self._files is None:
            self._files = list(self._find())
        flags: Flags = {}
        for name, attribute in self._files:
            try:
                number = attribute.number()
            except (OSError, ValueError):
                continue
            # Each core has its own count, and chips can share a name. The sum rises when any count rises.
            flags[name] = flags.get(name, 0) + number
        firmware = self._ask_firmware()
        if firmware is not None:
            flags[FIRMWARE] = firmware
        return flags

    def _ask_firmware(self) -> Optional[int]:
        # After a failed first attempt there is no other, because each attempt starts a program.
        if self._firmware is False:
            return None
        direct = self._pi_firmware.throttled()
        if direct is not None and (self._firmware or self._commands.path("vcgencmd") is None):
            return direct
        try:
            flags = int(self._commands.output("vcgencmd", FIRMWARE).partition("=")[2], 16)
        except (CommandError, ValueError):
            self._firmware = bool(self._firmware)
            return None
        if direct is not None and self._firmware is None and direct != flags:
            # The first time, the two answers are compared. If they differ, the program is right.
            self._pi_firmware.refuse()
        self._firmware = True
        return flags

    def _find(self) -> List[Tuple[str, sysfs.Attribute]]:
        paths: List[Tuple[str, str]] = []
        for cpu in sysfs.children(os.path.join(self._root, "sys/devices/system/cpu"), "cpu"):
            if os.path.basename(cpu)[3:].isdigit():
                paths.append((CORES, os.path.join(cpu, "thermal_throttle", CORES)))
        for device in sysfs.children(os.path.join(self._root, "sys/class/thermal"), "cooling_device"):
            kind = sysfs.text_or_none(os.path.join(device, "type")) or ""
            if any(word in kind for word in _SLOWING):
                paths.append(("cooling:%s" % kind, os.path.join(device, "cur_state")))
        for folder, chip in sysfs.hwmon_chips(self._root):
            for file in sysfs.children(folder):
                name = os.path.basename(file)
                if chip == "ina3221" and name.startswith("curr") and name.endswith("_alarm"):
                    paths.append((self._alarm(folder, name), file))
                elif chip == _OVER_CURRENT and name.startswith("oc") and name.endswith("_event_cnt"):
                    paths.append((name, file))
        return [(name, sysfs.Attribute(path)) for name, path in paths if os.path.exists(path)]

    @staticmethod
    def _alarm(folder: str, name: str) -> str:
        channel = name[len("curr") : name.index("_")]
        label = sysfs.text_or_none(os.path.join(folder, "in%s_label" % channel)) or channel
        return "alarm:%s %s" % (label, name.partition("_")[2])


def verdict(before: Flags, during: Sequence[Flags], after: Flags) -> Verdict:
    """The verdict on the flags of one measurement.

    Args:
        before: flags before the measurement.
        during: flags that were polled during the measurement.
        after: flags after the measurement.
    """
    reasons: List[str] = []
    invalid = ""
    later = [*during, after]
    for name in sorted(set().union(*later)):
        first = before.get(name, 0)
        values = [flags[name] for flags in later if name in flags]
        if name == FIRMWARE:
            found, weak = _firmware(first, values)
            reasons += found
            invalid = invalid or weak
        elif name == CORES and max(values) > first:
            reasons.append("cores throttled %d times" % (max(values) - first))
        elif name.startswith("cooling:") and max(values) > 0:
            reasons.append("%s holds the clock down (state %d)" % (name.partition(":")[2], max(values)))
        elif name.startswith("alarm:") and max(values) > first:
            reasons.append("current limit: %s" % name.partition(":")[2])
        elif name.endswith("_event_cnt") and max(values) > first:
            weak_supply = name.startswith("oc1_")
            kind = "under-voltage" if weak_supply else "over-current"
            reasons.append("%s: %d events (%s)" % (kind, max(values) - first, name))
            if weak_supply:
                invalid = invalid or "under-voltage: the supply is too weak (%s)" % name
    return Verdict(bool(reasons), tuple(reasons), invalid)


def _firmware(first: int, values: Sequence[int]) -> Tuple[List[str], str]:
    reasons = []
    invalid = ""
    for bit, meaning in enumerate(_FIRMWARE_BITS):
        now = any(value >> bit & 1 for value in values)
        newly = any(value >> (bit + _SINCE_START) & 1 for value in values) and not (
            first >> (bit + _SINCE_START) & 1
        )
        if now or newly:
            reasons.append(meaning)
            if bit == 0:
                invalid = "under-voltage: the supply of the board is too weak; use a stronger one"
    return reasons, invalid


def slowed_now(flags: Flags) -> bool:
    """Whether the flags show that the board was slowed down when they were read."""
    return verdict(flags, (), flags).throttled
