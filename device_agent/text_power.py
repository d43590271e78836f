"""What texts take of the device's power, where it has a sensor: a meter in a process of its own."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, Optional

from device_agent.measure.meter_client import MeterLost, MeterProcess


class TextPower:
    """Measures the power from the beginning of a text to its end.

    Args:
        meter: a `MeterProcess`, or what answers as it does.

    Attributes:
        unavailable: why nothing is measured; "" where it is.
    """

    def __init__(self, meter: Any) -> None:
        self._meter, self._begun_s = meter, 0.0
        self.unavailable = ""
        self._guarded(self._probe)

    def _probe(self) -> None:
        reason = self._meter.probe()["unavailable"]
        if reason is not None:
            self._give_up(str(reason))

    def begin(self) -> None:
        """Begins a text; one that was left does not count."""
        if not self.unavailable:
            self._guarded(self._begin)

    def _begin(self) -> None:
        if self._begun_s:
            self._meter.end(self._begun_s, time.monotonic(), 1)
        self._meter.begin({"energy": True, "trials": 1, "retries": 0})
        self._begun_s = time.monotonic()

    def end(self, tokens: int) -> Optional[Dict[str, float]]:
        """The mean `watts` since the beginning, and `joules_a_token`; None where they are not known.

        Args:
            tokens: of the text, one or more.
        """
        found: Dict[str, float] = {}

        def measured() -> None:
            energy = self._meter.end(self._begun_s, time.monotonic(), tokens)["energy"]
            # A text may be shorter than the sensor's period.
            if energy.get("gross_j") is not None:
                found.update(watts=float(energy["mean_w"]), joules_a_token=float(energy["gross_j"]))

        if self._begun_s and tokens > 0:
            self._guarded(measured)
        self._begun_s = 0.0
        return found or None

    def _guarded(self, action: Any) -> None:
        try:
            action()
        except (MeterLost, KeyError, TypeError, ValueError) as error:
            self._give_up("the meter failed: %s" % error)

    def _give_up(self, reason: str) -> None:
        self.unavailable = reason
        self._begun_s = 0.0
        self._meter.close()

    def close(self) -> None:
        """Ends the meter."""
        self._meter.close()


def of_this_machine(board: str) -> TextPower:
    """Power by the sensor that the agent of this machine would take.

    Args:
        board: file with the facts of the board; it may be missing.
    """
    facts = ["--board", board] if os.path.exists(board) else []
    return TextPower(MeterProcess([sys.executable, "-m", "device_agent.measure.meter", *facts]))
