"""Variants of a model measured in turn, in one power mode after the other, several times over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from host.compare.operating_points import PowerPoint
from host.compare.power_modes import ModeSwitch, Setting
from host.compare.runner import Race
from host.compile.variants import Variant
from host.errors import EngineError, MeasureError, SessionLost
from host.model import Energy, Measurement

if TYPE_CHECKING:
    from host.progress import StageClock
    from host.transport import Session


@dataclass(frozen=True)
class Effort:
    """How much is measured of each variant in each mode.

    Attributes:
        passes: times that all modes are gone through, so that drift meets all of them alike.
        rounds: rounds of latency in a pass.
        round_s: seconds of a round, at least.
        windows: energy windows in a pass; 0 for none.
    """

    passes: int = 3
    rounds: int = 3
    round_s: float = 0.3
    windows: int = 1


@dataclass(frozen=True)
class Idle:
    """Power without work in one mode.

    Attributes:
        mean_w, std_w: watts, and their standard deviation; None where it could not be taken.
        reason: why not.
    """

    mean_w: float | None
    std_w: float | None
    reason: str = ""

    def applied(self, energy: Energy) -> Energy:
        """An energy of this mode whose net figure goes by this idle power instead of another mode's."""
        if energy.gross_j is None:
            return energy
        whole = replace(energy, above_idle_j=None, idle_w=self.mean_w, idle_std_w=self.std_w)
        if self.mean_w is None or self.std_w is None or not energy.duration_s or not energy.n_inferences:
            return replace(whole, reason=self.reason or "no idle power was taken in this power mode")
        run_s = energy.duration_s / energy.n_inferences
        above = energy.gross_j - self.mean_w * run_s
        if above <= 3.0 * self.std_w * run_s:
            return replace(whole, reason="not distinguishable from idle")
        return replace(whole, above_idle_j=above, reason="")


class Sweep:
    """Variants measured in turn, in one mode after the other, several times over.

    Args:
        sessions: by key of the variant, each with its model loaded.
        inputs: to measure with.
        settings: states of the device, its own first.
        effort: how much.
        fresh: opens a session that has measured nothing yet: the first thing that it does is to take the
            power without work, which is another in each mode.
        start_c: hottest zone that energy windows wait for; 0 for none.
        home_only: variants, by key, that are measured in the device's own state alone.
        seed: of the order within a round.

    Attributes:
        refused: why settings could not be measured in, by name.
    """

    def __init__(
        self,
        sessions: Mapping[str, Session],
        inputs: Sequence[np.ndarray],
        settings: Sequence[Setting],
        effort: Effort,
        fresh: Callable[[], AbstractContextManager[Session]],
        start_c: float = 0.0,
        home_only: Collection[str] = (),
        seed: int = 0,
    ) -> None:
        self.refused: dict[str, str] = {}
        self._inputs = inputs
        self._settings = tuple(settings)
        self._effort = effort
        self._order = np.random.default_rng(seed)
        self._fresh = fresh
        self._idle: dict[str, Idle] = {}
        everywhere = {key: session for key, session in sessions.items() if key not in home_only}
        self._races = {
            setting.name: Race(sessions if setting.mode is None else everywhere, start_c)
            for setting in settings
        }

    def run(self, switch: ModeSwitch, clock: StageClock) -> None:
        """Measure everything.

        Raises:
            DeviceError: the device went away.
        """
        first = self._races[self._settings[0].name]
        first.line_up(self._inputs)
        done, total = 0, self._effort.passes * len(self._settings)
        try:
            for number in range(self._effort.passes):
                # There and back again: a board that warms up slows every mode down alike.
                for setting in self._settings if number % 2 == 0 else reversed(self._settings):
                    clock.progress.status(f"{setting.name or 'measuring'}, pass {number + 1}")
                    if setting.name not in self.refused:
                        self._measure(setting, switch, warm=number == 0)
                    done += 1
                    clock.progress.advance(done, total)
        finally:
            first.release()

    def _measure(self, setting: Setting, switch: ModeSwitch, warm: bool) -> None:
        try:
            switch.set(setting)
        except MeasureError as error:
            self.refused[setting.name] = str(error)
            return
        race, effort = self._races[setting.name], self._effort
        if effort.windows and setting.mode is not None and setting.name not in self._idle:
            self._idle[setting.name] = self._take_idle()
        for number in range(effort.rounds):
            for name in self._drawn(race):
                # Clocks take a moment to follow a new mode.
                race.measure(name, 0.5 if warm or number == 0 else 0.05, effort.round_s, 3)
        for _ in range(effort.windows):
            for name in self._drawn(race):
                race.measure_energy(name)

    def _take_idle(self) -> Idle:
        """The power without work in the present mode."""
        try:
            with self._fresh() as session:
                session.set_inputs(self._inputs)
                energy = session.measure(
                    energy=True, trials=1, warmup_s=0.0, warmup_runs=1, energy_s=1.0, min_time_s=0.0
                ).energy
        except (EngineError, SessionLost) as error:
            return Idle(None, None, str(error))
        return Idle(energy.idle_w, energy.idle_std_w, energy.reason)

    def _drawn(self, race: Race) -> list[str]:
        return [str(name) for name in self._order.permutation(sorted(race.running))]

    def points(self, variants: Mapping[str, Variant]) -> list[PowerPoint]:
        """What came of it: a point for every variant in every setting that could be set."""
        found = []
        for setting in self._settings:
            if setting.name in self.refused:
                continue
            race = self._races[setting.name]
            for key, windows in race.windows.items():
                race.windows[key] = [self._net(setting, window) for window in windows]
            rounds = self._effort.passes * self._effort.rounds
            paired = race.result(rounds) if race.running else None
            for key in race.parts:
                variant = variants[key]
                measurement = paired.measurements.get(key) if paired is not None else None
                point = PowerPoint(
                    variant=variant.name,
                    threads=variant.threads,
                    mode=setting.name,
                    candidate=variant.candidate,
                    measurement=measurement,
                    rounds_s=paired.rounds_s[key] if paired is not None and measurement else (),
                    windows=paired.windows[key] if paired is not None and measurement else (),
                    reason=race.failed.get(key, ""),
                )
                found.append(point)
        return found

    def _net(self, setting: Setting, window: Measurement) -> Measurement:
        idle = self._idle.get(setting.name)
        return window if idle is None else replace(window, energy=idle.applied(window.energy))
