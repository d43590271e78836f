"""Made-up points of known latency and energy, and a board of known truth at the level of the device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from host.compare.entrants import EntrantResult
from host.errors import DeviceError
from host.model import Energy, Measurement, Start

NO_SENSOR = Energy("unavailable", None, None, "no sensor")


def window(
    milliseconds: float, millijoules: float | None, boundary: str = "board", throttled: bool = False
) -> Measurement:
    """One energy window."""
    seconds = milliseconds * 1e-3
    energy = NO_SENSOR
    if millijoules is not None:
        joules = millijoules * 1e-3
        watts = joules / seconds
        trace = tuple((step / 10, watts, 50.0 + step) for step in range(5))
        energy = Energy(
            "measured",
            joules,
            joules / 2,
            "test sensor",
            boundary,
            rails=("total",),
            mean_w=watts,
            peak_w=watts * 1.2,
            idle_w=watts / 2,
            trials=1,
            duration_s=5.0,
            n_inferences=round(5.0 / seconds),
            idle_std_w=0.0,
            trace=trace,
        )
    return Measurement((seconds,) * 3, energy, {}, {}, 1, throttled=throttled)


def point(
    milliseconds: float,
    millijoules: float | None,
    variant: str = "fastest",
    threads: int = 1,
    mode: str = "",
    noise: float = 0.001,
    **more: Any,
) -> EntrantResult:
    """A point with three windows and six rounds that spread a little."""
    boundary, throttled = more.pop("boundary", "board"), more.pop("throttled", False)
    factors = 1.0 + noise * np.linspace(-1, 1, 6)
    joules = [None if millijoules is None else millijoules * (1 + noise * step) for step in (-1, 0, 1)]
    windows = tuple(window(milliseconds, value, boundary, throttled) for value in joules)
    whole = window(milliseconds, millijoules, boundary, throttled)
    rounds = tuple(float(milliseconds * 1e-3 * factor) for factor in factors)
    figures = dict(measurement=whole, rounds_s=rounds, windows=windows)
    return EntrantResult(variant, threads=threads, mode=mode, **figures, **more)


@dataclass
class Board:
    """A device with power modes whose truth is known: a mode scales time and watts.

    Attributes:
        truth: (factor of time, watts) by mode.
        home: governor that it was found in.
        fails: modes whose setting fails, with the reason.
    """

    truth: dict[str, tuple[float, float]]
    home: str = "schedutil"
    name: str = "board"
    fails: dict[str, str] = field(default_factory=dict)
    locked: dict[str, str] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    gone: bool = False

    def __post_init__(self) -> None:
        self.mode = self.home

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        if self.gone:
            raise DeviceError(f"{self.name}: the device agent went away")
        if command == "modes.list":
            return {"modes": [self._listed(name) for name in self.truth]}
        assert command == "modes.set", command
        mode = arguments["mode"]
        self.history.append(mode)
        if mode in self.fails:
            raise DeviceError(f"{self.name}: {self.fails[mode]}")
        self.mode = mode
        return {}

    def _listed(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "kind": "governor",
            "current": name == self.mode,
            "settable": name not in self.locked,
            "reason": self.locked.get(name),
        }

    def sensor(self) -> dict[str, Any]:
        return {"unavailable": None, "source": "test sensor"}


@dataclass
class Session:
    """A variant on a board: its time and watts times the mode's."""

    board: Board
    seconds: float
    watts: float = 1.0
    energy_known: bool = True
    idle_w: float = 0.0
    asked: list[tuple[str, bool]] = field(default_factory=list)
    warning: str = ""
    start: Start | None = None

    def set_inputs(self, inputs: Any) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def measure(self, energy: bool, **plan: Any) -> Measurement:
        self.asked.append((self.board.mode, energy))
        slower, watts = self.board.truth[self.board.mode]
        milliseconds = self.seconds * slower * 1e3
        joules = milliseconds * watts * self.watts if energy and self.energy_known else None
        measured = window(milliseconds, joules)
        if joules is None:
            return measured
        # As the agent: idle power is taken once a session, before its first window.
        self.idle_w = self.idle_w or watts / 4
        seconds = measured.median_s
        above = joules * 1e-3 - self.idle_w * seconds
        return replace(measured, energy=replace(measured.energy, idle_w=self.idle_w, above_idle_j=above))
