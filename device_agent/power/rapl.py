"""RAPL energy counters of x86 processors, through the kernel's powercap interface.

Layout and units: Documentation/power/powercap in the Linux sources. `energy_uj` counts microjoules and
wraps at `max_energy_range_uj`. It is readable by root only since CVE-2020-8694. Only packages are summed:
core, uncore and dram zones are parts, and psys covers more than the packages.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

_CLASS = "sys/class/powercap"


class Rapl:
    """The package domains of one machine.

    Args:
        root: prefix of all system paths.
    """

    # Well below the wrap time: 2^32 microjoules last 4 s at 1 kW at the very least, commonly minutes.
    period_s = 0.5

    def __init__(self, root: str = "/") -> None:
        self._base = os.path.join(root, _CLASS)
        self._zones: List[str] = []

    def probe(self) -> Optional[str]:
        """None where the counters can be read, else why not and what to do."""
        try:
            names = sorted(os.listdir(self._base))
        except OSError:
            return (
                "no RAPL: %s does not exist (not an x86 machine with powercap, or a virtual one)" % self._base
            )
        # Zones of packages have one number, their parts two; MMIO zones repeat the packages.
        zones = [name for name in names if name.startswith("intel-rapl:") and name.count(":") == 1]
        self._zones = [os.path.join(self._base, z) for z in zones if self._name(z).startswith("package")]
        if not self._zones:
            return "no RAPL: %s has no package domain" % self._base
        try:
            self.ranges()
            self.read()
        except PermissionError as error:
            return (
                "RAPL cannot be read: no permission for %s; run the agent as root or with CAP_DAC_READ_SEARCH"
                % (error.filename)
            )
        except (OSError, ValueError) as error:
            return "RAPL cannot be read: %s" % error
        return None

    def _name(self, zone: str) -> str:
        try:
            return _text(os.path.join(self._base, zone, "name"))
        except OSError:
            return ""

    def read(self) -> List[int]:
        """The counters of all packages, microjoules.

        Raises:
            OSError: a counter cannot be read.
        """
        return [int(_text(os.path.join(zone, "energy_uj"))) for zone in self._zones]

    def ranges(self) -> List[int]:
        """Where each counter wraps, microjoules.

        Raises:
            OSError: a range cannot be read.
        """
        return [int(_text(os.path.join(zone, "max_energy_range_uj"))) for zone in self._zones]

    def joules(self, before: List[int], after: List[int]) -> float:
        """Energy between two readings less than one wrap apart, joules."""
        total = 0
        for old, new, limit in zip(before, after, self.ranges()):
            total += new - old if new >= old else new - old + limit
        return total * 1e-6

    def describe(self) -> Dict[str, Any]:
        """Energy counters of processor packages: the board around them is not seen."""
        rails = [_text(os.path.join(zone, "name")) for zone in self._zones]
        return {"source": "rapl", "quantity": "energy", "rails": rails, "boundary": "package"}


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
