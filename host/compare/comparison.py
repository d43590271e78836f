"""Comparison of entrants: open a session for each, verify it, and measure all of them together.

Engines that can run a model and variants of a compiled model are compared in the same way; they differ in the
conditions (lengths, or power modes) and in how much is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from host.compare.effort import engine_effort, variant_effort
from host.compare.energy_windows import IdlePower
from host.compare.entrants import Entrant, EntrantResult, ratio_between
from host.compare.power_modes import ModeSwitch, PowerMode, Setting, current_modes, list_modes, settings_of
from host.compare.runner import Condition, InterleavedRun, require_any, require_bounds
from host.compare.selection import VariantSelection, select_variants
from host.compare.verification import verify
from host.errors import DeviceError, EngineError, SessionLost, UserError
from host.model import GoldenCase, Measurement, Signature
from host.statistics import geometric_mean

if TYPE_CHECKING:
    import numpy as np

    from host.progress import StageClock
    from host.transport import Device, Session
    from host.transport.prestarted_sessions import PrestartedSessions

# Seconds that a session may take to answer.
TIME_LIMIT_S = 300.0
# Seconds that timing the kernels one by one may take, within a least and a greatest number of runs.
_PROFILE_S = 3.0
_PROFILE_RUNS = (3, 20)

# Time of each peer over ours with its 95% bounds: value, low, high.
Ratios = Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True, eq=False)
class ComparisonSettings:
    """The settings of a comparison, which are the same for every entrant.

    Attributes:
        device: on which the entrants run.
        signature: of the model.
        golden: cases to verify with.
        inputs: sets of inputs to measure with; samples and energy are those of the last set.
        clock: counts the stages.
        rounds: of a comparison of engines, where the times of the device decide.
        objective: of the selection: "latency", "energy" or "edp".
        power_cap_w: greatest mean gross watts; None for no limit.
        power_modes: of the device to measure in, or "all"; () for the current mode only.
        diagnose: finds the kernel that makes the compiled model wrong in the last of some golden cases, which
            ran in this order.
        prestarted: sessions that were opened before; None where there are none.
    """

    device: Device
    signature: Signature
    golden: Sequence[GoldenCase]
    inputs: Sequence[Sequence[np.ndarray]]
    clock: StageClock
    rounds: int
    objective: str = "latency"
    power_cap_w: float | None = None
    power_modes: tuple[str, ...] = ()
    diagnose: Callable[[Session, Sequence[GoldenCase]], str] | None = None
    prestarted: PrestartedSessions | None = None


@dataclass(frozen=True)
class LengthFigures:
    """The comparison at one length of a range.

    Attributes:
        length: of the inputs.
        measurements: by engine.
        ratios: time of each peer over ours.
    """

    length: int
    measurements: Mapping[str, Measurement]
    ratios: Ratios


@dataclass(frozen=True)
class EngineComparison:
    """The results of every engine.

    Attributes:
        results: by engine, over all sets of inputs.
        kernel_times_s: seconds of one call of each kernel of the compiled model, while the model runs.
        each: the same for each set of inputs.
    """

    results: Mapping[str, EntrantResult]
    kernel_times_s: Mapping[str, float] = field(default_factory=dict)
    each: Sequence[Mapping[str, EntrantResult]] = ()

    def ratios(self) -> Ratios:
        """Time of each peer over that of the compiled model; empty if that was not measured."""
        return _ratios(self.results)

    def at_lengths(self, signature: Signature) -> tuple[LengthFigures, ...]:
        """The comparison at each measured length; empty if the signature has no range."""
        if signature.length is None:
            return ()
        return tuple(
            LengthFigures(length, measured(results), _ratios(results))
            for length, results in zip(signature.length.measured, self.each, strict=True)
        )


def measured(results: Mapping[str, EntrantResult]) -> dict[str, Measurement]:
    """The measurements of the entrants that have one."""
    return {name: one.measurement for name, one in results.items() if one.measurement is not None}


def _ratios(results: Mapping[str, EntrantResult]) -> Ratios:
    ours = results.get("tvm")
    found: dict[str, tuple[float, float, float]] = {}
    for name, one in results.items():
        ratio = ratio_between(one, ours) if ours is not None and name != "tvm" else None
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            found[name] = (ratio.value, ratio.low, ratio.high)
    return found


def compare_engines(settings: ComparisonSettings, entrants: Sequence[Entrant]) -> EngineComparison:
    """Open a session per engine, verify each, then measure all of them in interleaved rounds.

    An engine that fails is in the result with a reason. If the device is lost, the comparison ends.

    Raises:
        DeviceError: the device was lost.
        MeasureError: the measurement gave no usable number.
    """
    note = settings.clock.progress.note
    timing = settings.device.timing
    sensor = settings.device.sensor()["unavailable"]
    effort = engine_effort(timing, settings.rounds, settings.objective, bool(sensor))
    require_bounds(effort)
    with ExitStack() as stack:
        with settings.clock.stage("verify"):
            sessions, opened = _open(settings, entrants, stack)
            for one in opened.values():
                if one.reason:
                    note(f"{one.name} cannot run it: {one.reason}")
        if not sessions:
            return EngineComparison({one.name: one for one in opened.values()})
        last = len(settings.inputs) - 1
        conditions = [
            Condition(inputs, str(index), energy=index == last)
            for index, inputs in enumerate(settings.inputs)
        ]
        with settings.clock.stage("measure"):
            run = InterleavedRun(sessions, conditions, effort)
            run.run(settings.clock.progress, timing.decides)
            each = [
                {one.name: one for one in _completed(run.results(condition), opened)}
                for condition in conditions
            ]
            require_any(each[-1].values())
            if sensor:
                each[-1] = {name: one.without_energy(sensor) for name, one in each[-1].items()}
            times = {}
            ours = each[-1].get("tvm")
            if timing.decides and ours is not None and ours.measurement is not None:
                present = [session for key, session in sessions.items() if key not in run.failed]
                [own] = [sessions[one.key] for one in entrants if one.name == "tvm"]
                times = _kernel_times(own, present, settings.inputs[-1], ours.measurement.median_s)
    results = {one.name: one for one in opened.values()} | _over_all_inputs(each)
    for one in results.values():
        if one.measurement is not None and not one.measurement.trusted:
            reason = ", ".join(one.measurement.throttle_reasons) or one.measurement.invalid or "it throttled"
            note(f"{settings.device.name} was slowed down under {one.name}: {reason}")
    return EngineComparison(results, times, each)


def _over_all_inputs(each: Sequence[Mapping[str, EntrantResult]]) -> dict[str, EntrantResult]:
    """The results for several sets of inputs, combined.

    A combined round is the geometric mean of the corresponding rounds, so that a ratio is the geometric mean
    of the ratios and every set has the same weight. Samples and energy are those of the last set.
    """
    return {
        name: replace(
            one,
            rounds_s=tuple(
                geometric_mean(rounds)
                for rounds in zip(*(results[name].rounds_s for results in each), strict=True)
            ),
        )
        for name, one in each[-1].items()
    }


def why_excluded(settings: ComparisonSettings, entrant: Entrant) -> str:
    """Why an entrant cannot be measured: it does not run, or its outputs are wrong; "" where it can be.

    Raises:
        DeviceError: the device was lost.
    """
    with settings.clock.stage("verify"), ExitStack() as stack:
        _, opened = _open(settings, [entrant], stack)
        return opened[entrant.key].why_excluded


def compare_variants(settings: ComparisonSettings, variants: Sequence[Entrant]) -> VariantSelection:
    """Measure variants of the whole model in every requested power mode, and select one by the objective.

    The selected variant is the best one in the current mode of the device, to which the device returns; a
    better one in another mode is reported.

    Raises:
        UserError: a power mode is unknown or cannot be set.
        MeasureError: the objective or the cap needs a figure that the device does not give, or no variant is
            below the cap.
        DeviceError: the device went away.
    """
    device, note = settings.device, settings.clock.progress.note
    modes, remarks = _modes(device, settings.power_modes)
    states = settings_of(modes, settings.power_modes, device.name)
    sensor = device.sensor()["unavailable"]
    if sensor and settings.power_modes:
        remarks.append(f"energy is unavailable ({sensor}): modes are compared by latency alone")
    effort = variant_effort(bool(sensor), bool(settings.power_modes))
    with settings.clock.stage("finals"), ExitStack() as stack:
        sessions, opened = _open(settings, variants, stack)
        excluded = [one for one in opened.values() if one.why_excluded]
        for one in excluded:
            note(f"variant {one.name} on {one.threads} threads is excluded: {one.why_excluded}")
        if not sessions:
            raise EngineError(
                f"no variant of the model runs: {'; '.join(one.why_excluded for one in excluded)}"
            )
        switch = stack.enter_context(ModeSwitch(device, modes, note))
        first = next(one for one in variants if one.key in sessions)
        # What is measured for comparison only, is measured in the device's own state alone.
        beside = [one.key for one in variants if not one.deployable]
        conditions = [_condition(settings, state, switch, first, beside) for state in states]
        run = InterleavedRun(sessions, conditions, effort, hottest_c(device.state()))
        run.run(settings.clock.progress)
        results = [
            replace(one, mode=condition.name)
            for condition in conditions
            for one in _completed(run.results(condition), opened)
        ]
    remarks += run.refused.values()
    if sensor:
        results = [one.without_energy(sensor) for one in results]
    remarks += [f"{one.title} has no energy: {one.why_no_energy}" for one in results if one.why_no_energy]
    for remark in remarks:
        note(remark)
    return select_variants(
        [*excluded, *results], settings.objective, settings.power_cap_w, current_modes(modes), modes, remarks
    )


def _condition(
    settings: ComparisonSettings, state: Setting, switch: ModeSwitch, first: Entrant, beside: Sequence[str]
) -> Condition:
    """A condition to measure under; each power mode has its own idle power."""
    own = state.mode is None
    inputs = settings.inputs[-1]
    return Condition(
        inputs,
        state.name,
        absent=() if own else beside,
        enter=lambda: switch.set(state),
        idle_power=None if own else lambda: _idle_power(settings.device, first, inputs),
    )


def _idle_power(device: Device, entrant: Entrant, inputs: Sequence[np.ndarray]) -> IdlePower:
    """The idle power in the current mode, which a new session measures first."""
    try:
        with _fresh_session(device, entrant) as session:
            session.set_inputs(inputs)
            energy = session.measure(
                energy=True, trials=1, warmup_s=0.0, warmup_runs=1, energy_s=1.0, min_time_s=0.0
            ).energy
    except (EngineError, SessionLost) as error:
        return IdlePower(None, None, str(error))
    return IdlePower(energy.idle_w, energy.idle_std_w, energy.reason)


@contextmanager
def _fresh_session(
    device: Device, entrant: Entrant, mapped: bool = False, opened: PrestartedSessions | None = None
) -> Iterator[Session]:
    """A new session with the entrant loaded; `mapped`: see `Session.load`."""
    engine, threads = entrant.engine, entrant.threads
    taken = opened.take(device, engine, threads) if opened is not None else None
    with taken or device.open_session(engine, threads, TIME_LIMIT_S) as session:
        session.load(entrant.path, entrant.trust, mapped)
        yield session


def _open(
    settings: ComparisonSettings, entrants: Sequence[Entrant], stack: ExitStack
) -> tuple[dict[str, Session], dict[str, EntrantResult]]:
    """A verified session for each entrant that runs, and the results so far of all entrants, by key."""
    sessions: dict[str, Session] = {}
    opened: dict[str, EntrantResult] = {}
    # There may be memory for one copy of a language model's weights and not for the next.
    mapped = sum(entrant.engine == "tvm" for entrant in entrants) > 1
    for entrant in entrants:
        result = EntrantResult(
            entrant.name,
            threads=entrant.threads,
            deployable=entrant.deployable,
            instead_of=entrant.instead_of,
        )
        try:
            session = stack.enter_context(
                _fresh_session(settings.device, entrant, mapped, settings.prestarted)
            )
            if session.warning:
                settings.clock.progress.note(session.warning)
            verdict, worst = verify(session, settings.signature, settings.golden)
            of_main = entrant.engine == "tvm" and not verdict.function
            if not verdict.passed and of_main and settings.diagnose is not None:
                reason = settings.diagnose(session, settings.golden[: worst + 1])
                verdict = replace(verdict, message=f"{verdict.message}; {reason}")
        except (EngineError, SessionLost) as error:
            opened[entrant.key] = replace(result, reason=str(error))
            continue
        start = session.start if settings.device.timing.decides else None
        opened[entrant.key] = replace(result, verification=verdict, start=start)
        if verdict.passed or not entrant.must_verify:
            sessions[entrant.key] = session
        else:
            session.close()
    return sessions, opened


def _completed(
    figures: Mapping[str, EntrantResult], opened: Mapping[str, EntrantResult]
) -> list[EntrantResult]:
    """The figures of the run, combined with the results from opening the sessions."""
    return [
        replace(
            opened[key],
            measurement=one.measurement,
            reason=one.reason,
            rounds_s=one.rounds_s,
            windows=one.windows,
        )
        for key, one in figures.items()
    ]


def _kernel_times(
    ours: Session, sessions: Sequence[Session], inputs: Sequence[np.ndarray], run_s: float
) -> dict[str, float]:
    """Seconds of one call of each kernel inside the compiled model, while other sessions are stopped."""
    others = [session for session in sessions if session is not ours]
    for session in others:
        session.pause()
    least, most = _PROFILE_RUNS
    runs = min(most, max(least, int(_PROFILE_S / run_s)))
    try:
        profile = ours.profile(inputs, runs=runs)
    finally:
        for session in others:
            session.resume()
    return {name: time.seconds / time.calls for name, time in profile.items() if time.calls}


def _modes(device: Device, asked: Sequence[str]) -> tuple[tuple[PowerMode, ...], list[str]]:
    """The modes of a device if they are requested, and remarks about them."""
    if not asked:
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


def hottest_c(state: Mapping[str, Any]) -> float:
    """The temperature of the hottest zone in a device's state; 0 if no zone can be read."""
    zones = state.get("temperatures_c") or {}
    return max((float(value) for value in zones.values()), default=0.0)
