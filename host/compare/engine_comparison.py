"""Verify ours and measure it beside its peers, on one device in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

# Before anything that can be interrupted: its first import drops what the handler of a signal raises.
import numpy.random

from host.compare.verification import verify
from host.compile.result import Contender, LengthFigures, TaskOutcome, Verification
from host.errors import EngineError, SessionLost
from host.model import GoldenCase, Signature
from host.progress import StageClock

if TYPE_CHECKING:
    import numpy as np

    from host.compare.runner import PairedResult
    from host.transport import Device, Session

_TIME_LIMIT_S = 120.0
# Seconds that timing the kernels one by one may take, within a least and a greatest number of runs.
_PROFILE_S = 3.0
_PROFILE_RUNS = (3, 20)


@dataclass(frozen=True)
class Entrant:
    """An engine with the file that it runs.

    Attributes:
        engine: its name.
        path: bundle directory, or a model file for engines other than "tvm".
        installable: a bundle of it can be installed, and it must verify to be measured.
        trust: in the signer of a bundle: "signed" or "unsigned".
    """

    engine: str
    path: Path
    installable: bool
    trust: str = "signed"


@dataclass(frozen=True, eq=False)
class Terms:
    """What is the same for every entrant.

    Attributes:
        device: where they run.
        signature: of the model.
        golden: cases to verify with.
        inputs: sets of inputs to measure with, one after the other; the figures of the last stand for all.
        threads: threads of each.
        rounds: rounds of the paired comparison.
        energy_rounds: energy windows of each entrant, where the device has a sensor.
        clock: counts the stages.
        blame: finds the kernel that makes ours wrong in a golden case.
    """

    device: Device
    signature: Signature
    golden: Sequence[GoldenCase]
    inputs: Sequence[Sequence[np.ndarray]]
    threads: int
    rounds: int
    energy_rounds: int
    clock: StageClock
    blame: Callable[[Session, GoldenCase], str] | None = None


@dataclass(frozen=True)
class Contest:
    """What the device said of every entrant.

    Attributes:
        contenders: by engine.
        paired: the interleaved comparison, over all sets of inputs; None if no entrant could run.
        each: the same for each set of inputs.
        kernel_times_s: seconds of one call of each kernel of ours, inside the running model.
    """

    contenders: Mapping[str, Contender]
    paired: PairedResult | None
    kernel_times_s: Mapping[str, float] = field(default_factory=dict)
    each: Sequence[PairedResult] = ()

    def ratios(self) -> dict[str, tuple[float, float, float]]:
        """Time of each peer over ours with its 95% bounds; empty where ours was not measured."""
        return {} if self.paired is None else _ratios(self.paired)

    def at_lengths(self, signature: Signature) -> tuple[LengthFigures, ...]:
        """The comparison at each measured length; empty where the signature has no range."""
        if signature.length is None:
            return ()
        return tuple(
            LengthFigures(length, result.measurements, _ratios(result))
            for length, result in zip(signature.length.measured, self.each, strict=True)
        )

    def timed(self, tasks: Sequence[TaskOutcome]) -> tuple[TaskOutcome, ...]:
        """The tasks with the time of one call of each kernel, where it was measured."""
        return tuple(
            replace(task, latency_us=self.kernel_times_s[task.name] * 1e6)
            if task.name in self.kernel_times_s
            else task
            for task in tasks
        )


def _ratios(result: PairedResult) -> dict[str, tuple[float, float, float]]:
    if "tvm" not in result.measurements:
        return {}
    found = {name: result.ratio(name, "tvm") for name in result.measurements if name != "tvm"}
    return {name: (ratio.value, ratio.low, ratio.high) for name, ratio in found.items()}


def hold(terms: Terms, entrants: Sequence[Entrant]) -> Contest:
    """Open a session per entrant, verify each, then measure all of them in interleaved rounds.

    An entrant that fails stays in the result with its reason. A device that goes away ends everything.

    Raises:
        DeviceError: the device went away.
        MeasureError: the measurement gave no usable number.
    """
    from host.compare.runner import pooled

    contenders: dict[str, Contender] = {}
    with ExitStack() as stack:
        sessions: dict[str, Session] = {}
        with terms.clock.stage("verify"):
            for entrant in entrants:
                name = entrant.engine
                try:
                    sessions[name], verdict = _enter(terms, entrant, stack)
                except (EngineError, SessionLost) as error:
                    contenders[name] = Contender(name, None, None, str(error))
                    terms.clock.progress.note(f"{name} cannot run it: {error}")
                    continue
                contenders[name] = Contender(name, None, verdict)
                if entrant.installable and not verdict.passed:
                    sessions.pop(name).close()
        if not sessions:
            return Contest(contenders, None)
        with terms.clock.stage("measure"):
            each = _compared(terms, sessions)
            paired = pooled(each)
            left = {name: session for name, session in sessions.items() if name in paired.measurements}
            ours = paired.measurements.get("tvm")
            times = {}
            if ours is not None and not terms.device.emulated:
                times = _kernel_times(left, terms.inputs[-1], ours.median_s)
    for name, measurement in paired.measurements.items():
        if not measurement.trusted:
            reason = ", ".join(measurement.throttle_reasons) or measurement.invalid or "it throttled"
            terms.clock.progress.note(f"{terms.device.name} was slowed down under {name}: {reason}")
        contenders[name] = replace(
            contenders[name],
            measurement=measurement,
            rounds_s=paired.rounds_s[name],
            windows=tuple(paired.windows.get(name, ())),
        )
    for name, reason in paired.failed.items():
        contenders[name] = replace(contenders[name], reason=reason)
    return Contest(contenders, paired, times, each)


def _compared(terms: Terms, sessions: Mapping[str, Session]) -> list[PairedResult]:
    """A comparison for each set of inputs; who fails in one is out of those after it."""
    from host.compare.runner import compare

    each: list[PairedResult] = []
    for done, inputs in enumerate(terms.inputs):
        last = done == len(terms.inputs) - 1
        energy_rounds = terms.energy_rounds if last else 0
        each.append(compare(sessions, inputs, rounds=terms.rounds, energy_rounds=energy_rounds))
        sessions = {name: one for name, one in sessions.items() if name in each[-1].measurements}
        terms.clock.progress.advance(done + 1, len(terms.inputs))
    return each


def _enter(terms: Terms, entrant: Entrant, stack: ExitStack) -> tuple[Session, Verification]:
    """A session with the entrant's model loaded, and what its outputs are worth."""
    session = stack.enter_context(
        terms.device.open_session(entrant.engine, threads=terms.threads, time_limit_s=_TIME_LIMIT_S)
    )
    session.load(entrant.path, entrant.trust)
    if session.warning:
        terms.clock.progress.note(session.warning)
    verdict, worst = verify(session, terms.signature, terms.golden)
    if not verdict.passed and entrant.engine == "tvm" and terms.blame is not None:
        reason = terms.blame(session, terms.golden[worst])
        verdict = replace(verdict, message=f"{verdict.message}; {reason}")
    return session, verdict


def _kernel_times(
    sessions: Mapping[str, Session], inputs: Sequence[np.ndarray], run_s: float
) -> dict[str, float]:
    """Seconds of one call of each kernel of ours inside the running model, while the others stand still."""
    others = [session for name, session in sessions.items() if name != "tvm"]
    for session in others:
        session.pause()
    least, most = _PROFILE_RUNS
    runs = min(most, max(least, int(_PROFILE_S / run_s)))
    try:
        profile = sessions["tvm"].profile(inputs, runs=runs)
    finally:
        for session in others:
            session.resume()
    return {name: time.seconds / time.calls for name, time in profile.items() if time.calls}
