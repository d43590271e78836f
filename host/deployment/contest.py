"""Verify ours and measure it beside its peers, on one device in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host.bundle import BACKENDS, Backend
from host.deployment.clock import StageClock
from host.deployment.options import DeployOptions
from host.deployment.result import Choice, Contender, TaskOutcome, Verification
from host.deployment.verify import verify
from host.engines import ENGINES
from host.errors import EngineError, MeasureError, SessionLost, VerifyError
from host.model import GoldenCase, Signature

if TYPE_CHECKING:
    from host.measure.paired import PairedResult
    from host.transport import Device, Session

_TIME_LIMIT_S = 120.0
_PROFILE_RUNS = 10


@dataclass(frozen=True)
class Entrant:
    """An engine with the file that it runs.

    Attributes:
        engine: its name.
        path: bundle directory for "tvm", model file for others.
        installable: a bundle of it can be installed, and it must verify for that.
    """

    engine: str
    path: Path
    installable: bool


@dataclass(frozen=True)
class Contest:
    """What the device said of every entrant.

    Attributes:
        contenders: by engine.
        paired: the interleaved comparison; None if fewer than one could run.
        kernel_times_s: seconds of one call of each kernel of ours, inside the running model.
    """

    contenders: Mapping[str, Contender]
    paired: PairedResult | None
    kernel_times_s: Mapping[str, float] = field(default_factory=dict)

    def ratios(self) -> dict[str, tuple[float, float, float]]:
        """Time of each peer over ours with its 95% bounds; empty where ours was not measured."""
        if self.paired is None or "tvm" not in self.paired.measurements:
            return {}
        found = {name: self.paired.ratio(name, "tvm") for name in self.paired.measurements if name != "tvm"}
        return {name: (ratio.value, ratio.low, ratio.high) for name, ratio in found.items()}

    def timed(self, tasks: Sequence[TaskOutcome]) -> tuple[TaskOutcome, ...]:
        """The tasks with the time of one call of each kernel, where it was measured."""
        return tuple(
            replace(task, latency_us=self.kernel_times_s[task.name] * 1e6)
            if task.name in self.kernel_times_s
            else task
            for task in tasks
        )


def hold(
    device: Device,
    entrants: Sequence[Entrant],
    signature: Signature,
    golden: Sequence[GoldenCase],
    options: DeployOptions,
    threads: int,
    clock: StageClock,
) -> Contest:
    """Open a session per entrant, verify each, then measure all of them in interleaved rounds.

    An entrant that fails stays in the result with its reason. A device that goes away ends everything.

    Raises:
        DeviceError: the device went away.
        MeasureError: the measurement gave no usable number.
    """
    from host.measure.paired import compare

    contenders: dict[str, Contender] = {}
    with ExitStack() as stack:
        sessions: dict[str, Session] = {}
        with clock.stage("verify"):
            for entrant in entrants:
                try:
                    session, verdict = _enter(device, entrant, signature, golden, threads, stack)
                except (EngineError, SessionLost) as error:
                    contenders[entrant.engine] = Contender(entrant.engine, None, None, str(error))
                    clock.progress.note(f"{entrant.engine} cannot run it: {error}")
                    continue
                contenders[entrant.engine] = Contender(entrant.engine, None, verdict)
                if verdict.passed or not entrant.installable:
                    sessions[entrant.engine] = session
        if not sessions:
            return Contest(contenders, None)
        with clock.stage("measure"):
            paired = compare(sessions, golden[0].inputs, rounds=options.rounds)
            kernel_times = _kernel_times(sessions, golden[0]) if "tvm" in paired.measurements else {}
    for engine, measurement in paired.measurements.items():
        before = contenders[engine]
        contenders[engine] = Contender(engine, measurement, before.verification, before.reason)
    for engine, reason in paired.failed.items():
        contenders[engine] = replace(contenders[engine], reason=reason)
    return Contest(contenders, paired, kernel_times)


def _kernel_times(sessions: Mapping[str, Session], case: GoldenCase) -> dict[str, float]:
    """Seconds of one call of each kernel of ours inside the running model, while the others stand still."""
    others = [session for name, session in sessions.items() if name != "tvm"]
    for session in others:
        session.pause()
    try:
        profile = sessions["tvm"].profile(case.inputs, runs=_PROFILE_RUNS)
    finally:
        for session in others:
            session.resume()
    return {name: time.seconds / time.calls for name, time in profile.items() if time.calls}


def _enter(
    device: Device,
    entrant: Entrant,
    signature: Signature,
    golden: Sequence[GoldenCase],
    threads: int,
    stack: ExitStack,
) -> tuple[Session, Verification]:
    session = stack.enter_context(
        device.open_session(entrant.engine, threads=threads, time_limit_s=_TIME_LIMIT_S)
    )
    session.load(entrant.path)
    verdict, _ = verify(session, signature, golden)
    return session, verdict


def choose(contest: Contest, options: DeployOptions, fallback: str) -> Choice:
    """Which verified backend is installed.

    `auto` takes ours only where the comparison shows that it is at least as good: its 95% bound has
    to say so. Where the bound leaves it open, the library that the user had stays.

    Raises:
        VerifyError: nothing that may be installed gives the right outputs.
        EngineError: no engine of the device can run the model.
        MeasureError: energy was asked for and the device cannot measure it.
    """
    asked = options.backend
    verified = [name for name in BACKENDS if _may_be_installed(contest.contenders.get(name))]
    if asked != "auto":
        if asked not in verified:
            raise _refusal(contest, asked, fallback)
        backend = next(name for name in BACKENDS if name == asked)
        return Choice(backend, f"--backend {asked}", _ratio(contest, asked, verified, options))
    if not verified:
        raise _refusal(contest, next(iter(contest.contenders), "tvm"), fallback)
    if "tvm" not in verified:
        return Choice(verified[0], _why_not_ours(contest, fallback))
    rivals = [name for name in verified if name != "tvm"]
    if not rivals:
        return Choice("tvm", "the only verified backend for this format")
    return _compare(contest, rivals, options)


def _may_be_installed(one: Contender | None) -> bool:
    return (
        one is not None
        and one.measurement is not None
        and one.verification is not None
        and one.verification.passed
    )


def require_verified(contest: Contest, backend: str) -> None:
    """Refuse to go on without figures of a verified backend.

    Raises:
        VerifyError: its outputs are wrong.
        EngineError: it could not run.
    """
    one = contest.contenders[backend]
    if one.measurement is None:
        raise _refusal(contest, backend, "")


def _compare(contest: Contest, rivals: Sequence[Backend], options: DeployOptions) -> Choice:
    ratios = {name: _ratio_between(contest, name, options) for name in rivals}
    # The rival that does best against ours decides.
    rival = min(ratios, key=lambda name: ratios[name][0])
    ratio, low, high = ratios[rival]
    bound = f"{rival} / tvm = {ratio:.2f}, 95% bound {low:.2f} to {high:.2f}"
    word = "needs less energy" if options.objective == "energy" else "is faster"
    if low > 1.0:
        return Choice("tvm", f"tvm {word}: {bound}", ratios[rival])
    if high < 1.0:
        return Choice(rival, f"{rival} {word}: {bound}", ratios[rival])
    return Choice(rival, f"no difference shown, so the library stays: {bound}", ratios[rival])


def _ratio(
    contest: Contest, chosen: str, verified: Sequence[str], options: DeployOptions
) -> tuple[float, float, float] | None:
    rivals = [name for name in verified if name != chosen]
    if chosen != "tvm" or not rivals:
        return None
    return _ratio_between(contest, rivals[0], options)


def _ratio_between(contest: Contest, rival: str, options: DeployOptions) -> tuple[float, float, float]:
    """The rival's figure over ours with its 95% bounds."""
    assert contest.paired is not None
    if options.objective == "latency":
        ratio = contest.paired.ratio(rival, "tvm")
        return ratio.value, ratio.low, ratio.high
    return _energy_ratio(contest, rival)


def _energy_ratio(contest: Contest, rival: str) -> tuple[float, float, float]:
    joules = []
    for name in (rival, "tvm"):
        measurement = contest.contenders[name].measurement
        assert measurement is not None
        energy = measurement.energy
        if energy.gross_j is None:
            raise MeasureError(
                f"--objective energy: the device has no energy figure ({energy.source}); use latency"
            )
        joules.append(energy.gross_j)
    ratio = joules[0] / joules[1]
    return ratio, ratio, ratio


def _why_not_ours(contest: Contest, fallback: str) -> str:
    if fallback:
        return f"tvm cannot compile it: {fallback}"
    ours = contest.contenders.get("tvm")
    if ours is None:
        return "tvm was not asked for"
    if ours.verification is not None and not ours.verification.passed:
        return f"tvm gives wrong outputs: {ours.verification.message}"
    return f"tvm cannot run it: {ours.reason}"


def _refusal(contest: Contest, backend: str, fallback: str) -> EngineError | VerifyError:
    one = contest.contenders.get(backend)
    if one is None:
        reason = fallback if backend == "tvm" and fallback else "it does not read this model's format"
        return EngineError(f"backend {backend} cannot run the model: {reason}; use --backend auto")
    if one.verification is not None and not one.verification.passed:
        return VerifyError(f"backend {backend}: {one.verification.message}; nothing was installed")
    others = "; ".join(f"{name}: {c.reason}" for name, c in contest.contenders.items() if c.reason)
    also = f" (tvm: {fallback})" if fallback and backend != "tvm" else ""
    return EngineError(f"no engine of the device can run the model: {others or one.reason}{also}")


def title(engine: str) -> str:
    """The engine's name for people."""
    return ENGINES[engine].title if engine in ENGINES else engine
