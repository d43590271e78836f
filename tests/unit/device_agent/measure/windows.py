"""Short windows of work, of which only the stamps matter."""

from __future__ import annotations

import time

PLAN = {"energy_s": 0.1, "energy_updates": 5, "trials": 1}


def window(power, plan=None, runs=10, seconds=0.12, during=lambda: None):
    """A window of work, of which only its stamps matter."""
    begun = power.begin(plan)
    start = time.monotonic()
    during()
    time.sleep(seconds)
    return begun, power.end(start, time.monotonic(), runs)
