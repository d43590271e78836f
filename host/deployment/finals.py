"""The finals: variants of the whole model side by side, with energy, in every power mode asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from host.deployment.modes import ModeSwitch, PowerMode, Setting, home_of, list_modes, settings_of
from host.deployment.options import DeployOptions
from host.deployment.power import PowerPoint, PowerResult, gain, take
from host.deployment.variants import UNTUNED, Variant
from host.deployment.verify import verify
from host.errors import DeviceError, EngineError, MeasureError, SessionLost, UserError
from host.measure.paired import Race
from host.model import GoldenCase, Signature

if TYPE_CHECKING:
    from host.deployment.clock import StageClock
    from host.transport import Device, Session

_TIME_LIMIT_S = 300.0


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


@dataclass(frozen=True, eq=False)
class Field:
    """What the finals are held with.

    Attributes:
        device: where.
        signature: of the model.
        golden: cases that each variant must verify with.
        inputs: to measure with.
        clock: counts the stage.
    """

    device: Device
    signature: Signature
    golden: Sequence[GoldenCase]
    inputs: Sequence[np.ndarray]
    clock: StageClock


def require_sensor(device: Device, options: DeployOptions) -> None:
    """Refuse to begin where the figure that decides cannot be had.

    Raises:
        MeasureError: energy or power decides, and the device has no sensor that can be read.
    """
    if options.needs_energy and (reason := device.sensor()["unavailable"]):
        asked = f"--objective {options.objective}"
        if options.objective == "latency":
            asked = f"--power-cap {options.power_cap_w:g}"
        raise MeasureError(f"{asked}: {device.name} cannot measure it ({reason})")


def hold_finals(field: Field, variants: Sequence[Variant], options: DeployOptions) -> PowerResult:
    """Measure the variants and take the one that the objective asks for.

    What is deployed is the best in the mode that the device is in, because that is what it goes back to; a
    better one in another mode is told of.

    Raises:
        UserError: a power mode is unknown or cannot be set.
        MeasureError: the objective or the cap needs a figure that the device does not give, or no variant is
            below the cap.
        DeviceError: the device went away.
    """
    modes, remarks = _modes(field.device, options)
    settings = settings_of(modes, options.power_modes, field.device.name)
    sensor = field.device.sensor()["unavailable"]
    if sensor and options.power_modes:
        remarks.append(f"energy is unavailable ({sensor}): modes are compared by latency alone")
    effort = Effort(windows=0 if sensor else 1)
    with field.clock.stage("finals"), ExitStack() as stack:
        sessions, points = _enter(field, variants, stack)
        switch = stack.enter_context(ModeSwitch(field.device, modes, field.clock.progress.note))
        sweep = Sweep(sessions, field.inputs, settings, effort)
        sweep.run(switch, field.clock)
        points += sweep.points({_key(variant): variant for variant in variants})
    remarks += [f"{setting}: {reason}" for setting, reason in sweep.refused.items()]
    for remark in remarks:
        field.clock.progress.note(remark)
    return decided(points, options, home_of(modes), modes, remarks)


def decided(
    points: Sequence[PowerPoint],
    options: DeployOptions,
    home: str,
    modes: Sequence[PowerMode] = (),
    remarks: Sequence[str] = (),
) -> PowerResult:
    """What the measured points come to.

    Args:
        points: of all modes.
        options: objective and cap.
        home: the mode that the device is in.
        modes: all that it has.
        remarks: what the user should know.

    Raises:
        MeasureError: see `host.deployment.power.take`.
    """
    here = [point for point in points if point.mode == home]
    best, why = take(here, options.objective, options.power_cap_w)
    untuned = next((point for point in here if point.variant == UNTUNED and point.rounds_s), None)
    result = PowerResult(
        objective=options.objective,
        points=tuple(points),
        home=home,
        cap_w=options.power_cap_w,
        taken=best,
        why=why,
        modes=tuple(modes),
        gain=gain(untuned, best, "latency") if untuned is not None else None,
        energy_gain=gain(untuned, best, "energy") if untuned is not None else None,
    )
    return replace(result, remarks=tuple(remarks), advice=better_elsewhere(result))


def better_elsewhere(result: PowerResult) -> str:
    """Which other power mode would serve the objective better, "" for none."""
    assert result.taken is not None
    present = result.taken.value(result.objective)
    best, value = None, present
    for point in result.points:
        other = point.value(result.objective)
        usable = point.candidate and point.trusted and result.allowed(point) and point.mode != result.home
        if usable and other is not None and value is not None and other < value:
            best, value = point, other
    if best is None or not present or value is None:
        return ""
    saved = 1.0 - value / present
    return f"power mode {best.mode} would save {saved:.0%} of {_NOUNS[result.objective]} ({best.name})"


_NOUNS = {"latency": "the time", "energy": "the energy", "edp": "the energy-delay product"}


def _modes(device: Device, options: DeployOptions) -> tuple[tuple[PowerMode, ...], list[str]]:
    """The modes of a device where they are asked for, and what to say of them."""
    if not options.power_modes:
        return (), []
    try:
        modes = list_modes(device)
    except DeviceError as error:
        raise UserError(f"--power-modes: {device.name} lists none ({error}); leave the option out") from error
    remarks = [
        f"power mode {mode.name} is not measured: {mode.reason or 'the agent may not set it'}"
        for mode in modes
        if not mode.settable and not mode.current
    ]
    if not any(mode.settable for mode in modes):
        remarks.append(f"{device.name} has no power mode that its agent may set")
    return modes, remarks


def _key(variant: Variant) -> str:
    return f"{variant.name}/{variant.threads}"


def _enter(
    field: Field, variants: Sequence[Variant], stack: ExitStack
) -> tuple[dict[str, Session], list[PowerPoint]]:
    """A session for each variant that gives the right outputs; the others as points with their reason."""
    sessions: dict[str, Session] = {}
    out: list[PowerPoint] = []
    for variant in variants:
        try:
            session = stack.enter_context(
                field.device.open_session(variant.engine, variant.threads, _TIME_LIMIT_S)
            )
            session.load(variant.path)
            verdict, _ = verify(session, field.signature, field.golden)
            reason = "" if verdict.passed else f"it gives wrong outputs: {verdict.message}"
        except (EngineError, SessionLost) as error:
            reason = str(error)
        if not reason:
            sessions[_key(variant)] = session
            continue
        out.append(PowerPoint(variant.name, variant.threads, "", variant.candidate, reason=reason))
        field.clock.progress.note(f"variant {variant.name} on {variant.threads} threads is out: {reason}")
    if not sessions:
        raise EngineError(f"no variant of the model runs: {'; '.join(point.reason for point in out)}")
    return sessions, out


class Sweep:
    """Variants measured in turn, in one mode after the other, several times over.

    Args:
        sessions: by key of the variant, each with its model loaded.
        inputs: to measure with.
        settings: states of the device, its own first.
        effort: how much.
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
        seed: int = 0,
    ) -> None:
        self.refused: dict[str, str] = {}
        self._sessions = sessions
        self._inputs = inputs
        self._settings = tuple(settings)
        self._effort = effort
        self._order = np.random.default_rng(seed)
        self._races = {setting.name: Race(sessions) for setting in settings}

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
        for number in range(effort.rounds):
            for name in self._drawn(race):
                # Clocks take a moment to follow a new mode.
                race.measure(name, 0.5 if warm or number == 0 else 0.05, effort.round_s, 3)
        for _ in range(effort.windows):
            for name in self._drawn(race):
                race.measure_energy(name)

    def _drawn(self, race: Race) -> list[str]:
        return [str(name) for name in self._order.permutation(sorted(race.running))]

    def points(self, variants: Mapping[str, Variant]) -> list[PowerPoint]:
        """What came of it: a point for every variant in every setting that could be set."""
        found = []
        for setting in self._settings:
            if setting.name in self.refused:
                continue
            race = self._races[setting.name]
            rounds = self._effort.passes * self._effort.rounds
            paired = race.result(rounds) if race.running else None
            for key in self._sessions:
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


def variant_of(point: PowerPoint, variants: Sequence[Variant]) -> Variant:
    """The variant that a point was measured of."""
    return next(one for one in variants if one.name == point.variant and one.threads == point.threads)
