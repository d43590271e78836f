"""Which verified backend is installed, by the comparison on the device."""

from __future__ import annotations

from collections.abc import Sequence

from host.compare.engine_comparison import Contest
from host.compile.result import Choice, Contender
from host.errors import EngineError, MeasureError, VerifyError
from host.options import BACKENDS, Backend, DeployOptions

_WORDS = {
    "latency": "is faster",
    "energy": "needs less energy",
    "edp": "has a smaller energy-delay product",
}


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
    rivals = [name for name in rivals if _below_cap(contest, name, options.power_cap_w)]
    if not rivals:
        return Choice("tvm", f"no other verified backend stays below {options.power_cap_w:g} W")
    return _compare(contest, rivals, options)


def _may_be_installed(one: Contender | None) -> bool:
    return (
        one is not None
        and one.measurement is not None
        and one.verification is not None
        and one.verification.passed
    )


def _below_cap(contest: Contest, backend: str, cap_w: float | None) -> bool:
    if cap_w is None:
        return True
    measurement = contest.contenders[backend].measurement
    watts = None if measurement is None else measurement.energy.mean_w
    return watts is not None and watts <= cap_w


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
    if len(contest.each) > 1 and options.objective == "latency":
        bound += f", geometric mean over {len(contest.each)} lengths"
    word = _WORDS[options.objective]
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
    return _energy_ratio(contest, rival, options.objective)


def _energy_ratio(contest: Contest, rival: str, objective: str) -> tuple[float, float, float]:
    assert contest.paired is not None
    for name in (rival, "tvm"):
        measurement = contest.contenders[name].measurement
        assert measurement is not None
        energy = measurement.energy
        if energy.gross_j is None:
            raise MeasureError(
                f"--objective {objective}: the device has no energy figure ({energy.source}); use latency"
            )
    paired = contest.paired
    ratio = paired.energy_ratio(rival, "tvm") if objective == "energy" else paired.edp_ratio(rival, "tvm")
    return ratio.value, ratio.low, ratio.high


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
