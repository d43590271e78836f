"""RAPL energy counters of x86 processors, through the kernel's powercap interface.

Layout and units: Documentation/power/powercap in the Linux sources. `energy_uj` counts microjoules and
wraps at `max_energy_range_uj`. It is readable by root only since CVE-2020-8694. Only packages are summed:
core, uncore and dram zones are parts, and psys covers more than the packages. AMD processors have the same.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from device_agent.board import sysfs
from device_agent.board.sysfs import Attribute

_CLASS = "sys/class/powercap"


class Rapl:
    """The package domains of one machine.

    Args:
        root: prefix of all system paths.
        board: facts of the board; the domains need none.
    """

    name = "rapl"
    order = 40
    quantity = "energy"
    # Far below the wrap time (2^32 microjoules last 4 s at 1 kW at the very least, commonly minutes), and
    # fine enough to see power over time.
    period_s = 0.1

    def __init__(self, root: str = "/", board: Optional[Dict[str, Any]] = None) -> None:
        self._base = os.path.join(root, _CLASS)
        self._names: List[str] = []
        self._parts: List[str] = []
        self._counters: List[Attribute] = []
        self._ranges: List[int] = []

    def probe(self) -> Optional[str]:
        """None where the counters can be read, else why not and what to do."""
        folders = sysfs.children(self._base, "intel-rapl:")
        if not os.path.isdir(self._base):
            return (
                "no RAPL: %s does not exist (not an x86 machine with powercap, or a virtual one)" % self._base
            )
        names = {folder: sysfs.text_or_none(os.path.join(folder, "name")) or "" for folder in folders}
        # Zones of packages have one number, their parts two; MMIO zones repeat the packages.
        zones = [
            folder
            for folder in folders
            if os.path.basename(folder).count(":") == 1 and names[folder].startswith("package")
        ]
        if not zones:
            return "no RAPL: %s has no package domain" % self._base
        self._names = [names[zone] for zone in zones]
        self._parts = sorted({names[folder] for folder in folders if folder not in zones and names[folder]})
        self._counters = [Attribute(os.path.join(zone, "energy_uj")) for zone in zones]
        try:
            self._ranges = [int(sysfs.text(os.path.join(zone, "max_energy_range_uj"))) for zone in zones]
            self.read()
        except PermissionError as error:
            return (
                "RAPL cannot be read: no permission for %s; run the agent as root or with "
                "CAP_DAC_READ_SEARCH (install it with --system), or type "
                "`sudo chmod a+r %s/intel-rapl:*/energy_uj` (until the next start; any program can "
                "then watch the power: CVE-2020-8694)" % (error.filename, self._base)
            )
        except (OSError, ValueError) as error:
            return "RAPL cannot be read: %s" % error
        return None

    def read(self) -> List[int]:
        """The counters of all packages, microjoules.

        Raises:
            OSError: a counter cannot be read.
        """
        return [counter.number() for counter in self._counters]

    def joules(self, before: List[int], after: List[int]) -> Optional[float]:
        """Energy between two readings less than one wrap apart, joules."""
        total = 0
        for old, new, limit in zip(before, after, self._ranges):
            total += new - old if new >= old else new - old + limit
        return total * 1e-6

    def describe(self) -> Dict[str, Any]:
        """Energy counters of processor packages: the board around them is not seen."""
        return {
            "kind": "measured",
            "source": self.name,
            "quantity": self.quantity,
            "rails": list(self._names),
            "parts": list(self._parts),
            "boundary": "package",
            "period_s": self.period_s,
        }

    def close(self) -> None:
        """Closes the files."""
        for counter in self._counters:
            counter.close()


SENSORS = (Rapl,)
