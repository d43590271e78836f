"""The finals: variants of the whole model side by side, with energy, in every power mode asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from host.compare.operating_points import PowerPoint, PowerResult, gain, take
from host.compare.power_mode_sweep import Effort, Sweep
from host.compare.power_modes import ModeSwitch, PowerMode, home_of, list_modes, settings_of
from host.compare.verification import verify
from host.compile.variants import UNTUNED, Variant
from host.errors import DeviceError, EngineError, MeasureError, SessionLost, UserError
from host.model import Energy, GoldenCase, Signature
from host.options import DeployOptions

if TYPE_CHECKING:
    from host.progress import StageClock
    from host.transport import Device, Session

_TIME_LIMIT_S = 300.0


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
    if sensor and not options.power_modes:
        # Before and after a tuning, nothing else: differences of a few percent need no more.
        effort = replace(effort, rounds=2, round_s=0.2)
    with field.clock.stage("finals"), ExitStack() as stack:
        sessions, points = _enter(field, variants, stack)
        switch = stack.enter_context(ModeSwitch(field.device, modes, field.clock.progress.note))
        fresh = partial(_fresh, field, next(one for one in variants if _key(one) in sessions))
        start_c = hottest_c(field.device.state())
        beside = [_key(variant) for variant in variants if not variant.candidate]
        sweep = Sweep(sessions, field.inputs, settings, effort, fresh, start_c, beside)
        sweep.run(switch, field.clock)
        points += sweep.points({_key(variant): variant for variant in variants})
    remarks += sweep.refused.values()
    if sensor:
        points = [_without_energy(point, sensor) for point in points]
    else:
        remarks += [f"{point.name} has no energy: {point.blind}" for point in points if point.blind]
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
        MeasureError: see `host.compare.operating_points.take`.
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


def _without_energy(point: PowerPoint, reason: str) -> PowerPoint:
    """A point that says why the device has no energy, where none was asked of it."""
    if point.measurement is None:
        return point
    energy = Energy("unavailable", None, None, reason)
    return replace(point, measurement=replace(point.measurement, energy=energy))


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


@contextmanager
def _fresh(field: Field, variant: Variant) -> Iterator[Session]:
    """A session that has measured nothing yet, with a variant loaded."""
    with field.device.open_session(variant.engine, variant.threads, _TIME_LIMIT_S) as session:
        session.load(variant.path)
        yield session


def hottest_c(state: Mapping[str, Any]) -> float:
    """The hottest zone of a device's state; 0 where it has none that can be read."""
    zones = state.get("temperatures_c") or {}
    return max((float(value) for value in zones.values()), default=0.0)


def variant_of(point: PowerPoint, variants: Sequence[Variant]) -> Variant:
    """The variant that a point was measured of."""
    return next(one for one in variants if one.name == point.variant and one.threads == point.threads)
