"""The sensor of a machine without sensors: callers need no special case, and never receive 0 W."""

from __future__ import annotations

from typing import Any, Dict, Optional


class NoSensor:
    """The sensor of a machine that has none: `probe` gives the reason, and `read` fails."""

    quantity = "none"
    period_s = 1.0

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def probe(self) -> Optional[str]:
        """Why there is nothing to read."""
        return self._reason

    def read(self) -> float:
        """Never gives a value.

        Raises:
            OSError: always, with the reason.
        """
        raise OSError(self._reason)

    def describe(self) -> Dict[str, Any]:
        """The fields of a missing sensor: its kind is `unavailable`."""
        return {
            "kind": "unavailable",
            "source": "none",
            "quantity": self.quantity,
            "rails": [],
            "boundary": "",
            "period_s": None,
        }

    def close(self) -> None:
        """Nothing is open."""
