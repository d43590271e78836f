"""Boards of one actor: a module of its own, so that the actor's process imports no compiler."""

from __future__ import annotations

import time

from host.model import Energy, Measurement


class Rack:
    """The actor's object: boards that take their time.

    Args:
        seconds: that a measurement takes.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def measure(self, kernel: str, library: bytes) -> Measurement:
        """Take the time of a measurement."""
        time.sleep(self._seconds)
        seconds = 1e-4 * (1.0 + int.from_bytes(library[-4:], "little") / 2**32)
        state = {"load_1min": 0.1, "temperatures_c": {"cpu": 51.0}, "clocks_hz": [1.5e9] * 4}
        return Measurement((seconds,) * 9, Energy("unavailable", None, None, "simulated"), state, state, 1)
