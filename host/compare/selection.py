"""Selection of the deployed variant and backend, by the 95% bounds of a comparison.

There is one rule: the default stays unless the bound of the paired ratio shows that another entrant is better
by the objective. The default among the variants of the compiled model is the fastest one; the default among
the engines is the user's own library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from host.compare.entrants import EntrantResult, ratio_between
from host.compare.pareto import ParetoFront, pareto
from host.errors import EngineError, MeasureError, VerifyError
from host.options import BACKENDS, Backend
from host.statistics import MIN_TRIALS, Estimate

if TYPE_CHECKING:
    from host.compare.comparison import EngineComparison
    from host.compare.power_modes import PowerMode
    from host.transport import Device


@dataclass(frozen=True)
class _Phrases:
    """The phrases for an objective in messages: about a variant, about an engine, and for what is saved."""

    variant: str
    engine: str
    saved: str


_EDP = "has a smaller energy-delay product"
_PHRASES = {
    "latency": _Phrases("takes less time", "is faster", "the time"),
    "energy": _Phrases("needs less energy", "needs less energy", "the energy"),
    "edp": _Phrases(_EDP, _EDP, "the energy-delay product"),
}


@dataclass(frozen=True)
class Choice:
    """Which backend was installed and why.

    Attributes:
        backend: "tvm", "onnxruntime" or "litert".
        why: one sentence.
        ratio: the peer's figure over that of the compiled model, with 95% bounds (low, high); None if not
            compared.
    """

    backend: Backend
    why: str
    ratio: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class VariantSelection:
    """The measured variants and the selected one.

    Attributes:
        objective: "latency", "energy" or "edp".
        points: every variant in every mode; those of the original mode first.
        home: the original mode of the device, which is restored.
        cap_w: greatest mean gross watts; None for no limit.
        taken: the point that is deployed; None if there was no choice.
        why: one sentence.
        modes: every mode that the agent lists.
        gain: time of the untuned model over that of the deployed one, with bounds; None without tuning.
        energy_gain: the same for energy; None if energy is unavailable.
        remarks: notes for the user, which were also reported during the measurement.
        advice: a power mode that would serve the objective better, "" if there is none.
    """

    objective: str
    points: tuple[EntrantResult, ...]
    home: str = ""
    cap_w: float | None = None
    taken: EntrantResult | None = None
    why: str = ""
    modes: tuple[PowerMode, ...] = ()
    gain: Estimate | None = None
    energy_gain: Estimate | None = None
    remarks: tuple[str, ...] = ()
    advice: str = ""

    @property
    def front(self) -> ParetoFront:
        """The Pareto front of latency and energy over the variants in all power modes."""
        return pareto([point for point in self.points if point.deployable])

    def allows(self, point: EntrantResult) -> bool:
        """Whether a point is within the power cap."""
        return below_cap(point, self.cap_w)


def require_sensor(device: Device, objective: str, cap_w: float | None) -> None:
    """Refuse to begin if the device cannot measure what the objective needs.

    Raises:
        MeasureError: the objective needs energy or power, and the device has no readable sensor.
    """
    if objective == "latency" and cap_w is None:
        return
    if reason := device.sensor()["unavailable"]:
        asked = f"--power-cap {cap_w:g}" if objective == "latency" else f"--objective {objective}"
        raise MeasureError(f"{asked}: {device.name} cannot measure it ({reason})")


def below_cap(result: EntrantResult, cap_w: float | None) -> bool:
    """Whether an entrant is known to stay within a power cap; without a cap, all do."""
    return cap_w is None or (result.mean_w is not None and result.mean_w <= cap_w)


def select_variants(
    points: Sequence[EntrantResult],
    objective: str,
    cap_w: float | None,
    home: str,
    modes: Sequence[PowerMode] = (),
    remarks: Sequence[str] = (),
) -> VariantSelection:
    """Select a variant in the original mode of the device, and summarise the other measurements.

    Args:
        points: of all modes.
        objective: "latency", "energy" or "edp".
        cap_w: greatest mean gross watts; None for no limit.
        home: the original mode of the device.
        modes: all modes of the device.
        remarks: notes for the user.

    Raises:
        MeasureError: see `select_variant`.
    """
    here = [point for point in points if point.mode == home]
    best, why = select_variant(here, objective, cap_w)
    untuned = next((point for point in here if not point.deployable and point.rounds_s), None)
    selection = VariantSelection(
        objective=objective,
        points=tuple(points),
        home=home,
        cap_w=cap_w,
        taken=best,
        why=why,
        modes=tuple(modes),
        gain=None if untuned is None else ratio_between(untuned, best),
        energy_gain=None if untuned is None else ratio_between(untuned, best, "energy"),
        remarks=tuple(remarks),
    )
    return replace(selection, advice=_better_elsewhere(selection, best))


def _better_elsewhere(selection: VariantSelection, taken: EntrantResult) -> str:
    """The other power mode that would serve the objective better, "" if there is none."""
    objective = selection.objective
    present = taken.value(objective)
    usable = [
        (value, point)
        for point in selection.points
        if point.deployable and point.trusted and selection.allows(point)
        if point.mode != selection.home and (value := point.value(objective)) is not None
    ]
    value, best = min(usable, key=lambda pair: pair[0], default=(math.inf, taken))
    if not present or value >= present:
        return ""
    saved = 1.0 - value / present
    return f"power mode {best.mode} would save {saved:.0%} of {_PHRASES[objective].saved} ({best.title})"


def select_variant(
    points: Sequence[EntrantResult], objective: str, cap_w: float | None = None
) -> tuple[EntrantResult, str]:
    """The variant of one mode to deploy, and the reason.

    This is the fastest variant, unless the 95% bound of the paired ratio shows that another one is better by
    the objective. A variant that stands instead of another is left out unless that bound shows it is better,
    or the cap excludes the other.

    Args:
        points: of one mode, in one run.
        objective: "latency", "energy" or "edp".
        cap_w: greatest mean gross watts.

    Raises:
        MeasureError: no point has the figure, or none is below the cap.
    """
    usable = [point for point in points if point.deployable and point.measurement is not None]
    if not usable:
        reasons = "; ".join(f"{one.title}: {one.why_excluded}" for one in points) or "there is none"
        raise MeasureError(f"no variant of the model could be measured ({reasons}); measure again")
    standing = [point for point in usable if _may_stand(point, usable, objective, cap_w)]
    left_out = len(usable) > len(standing)
    usable = [point for point in standing if point.trusted] or standing
    if cap_w is not None:
        usable = _within(usable, cap_w)
    known = {point: value for point in usable if (value := point.value(objective)) is not None}
    if not known:
        energy = usable[0].energy
        assert energy is not None
        raise MeasureError(
            f"--objective {objective}: no variant has an energy figure ({energy.reason or energy.source}); "
            "use latency"
        )
    fastest = min(known, key=lambda point: point.value("latency") or math.inf)
    better = {
        point: ratio
        for point in known
        if point is not fastest and (ratio := ratio_between(point, fastest, objective)) is not None
        if ratio.shown_less and known[point] < known[fastest]
    }
    if better:
        best = min(better, key=lambda point: known[point])
        ratio = better[best]
        return best, (
            f"{best.title} {_PHRASES[objective].variant} than the fastest variant: {ratio.value:.3f} times, "
            f"95% bound {ratio.low:.3f} to {ratio.high:.3f}"
        )
    if len(known) == 1 and left_out:
        return fastest, f"{fastest.title} stays: no plan {_PHRASES[objective].variant} beyond noise"
    if len(known) == 1:
        return fastest, f"{fastest.title} is the only variant" + (f" below {cap_w:g} W" if cap_w else "")
    shown = "" if objective == "latency" else f"; no other {_PHRASES[objective].variant} beyond noise"
    return fastest, f"{fastest.title} is the fastest{shown}"


def _may_stand(
    point: EntrantResult, points: Sequence[EntrantResult], objective: str, cap_w: float | None
) -> bool:
    """Whether a variant may be taken beside the one that it stands instead of, of all that were measured."""
    stood = next(
        (one for one in points if (one.name, one.threads) == (point.instead_of, point.threads)), None
    )
    if stood is None or not below_cap(stood, cap_w):
        return True
    ratio = ratio_between(point, stood, objective)
    # A ratio to what was slowed down shows nothing.
    return stood.trusted and ratio is not None and ratio.shown_less


def _within(points: Sequence[EntrantResult], cap_w: float) -> list[EntrantResult]:
    """The points within a power cap.

    Raises:
        MeasureError: there is none; the message names the closest.
    """
    known = [(point.mean_w, point) for point in points if point.mean_w is not None]
    if not known:
        energy = points[0].energy
        assert energy is not None
        raise MeasureError(f"--power-cap {cap_w:g}: power is unavailable ({energy.reason or energy.source})")
    within = [point for point in points if below_cap(point, cap_w)]
    if not within:
        watts, closest = min(known, key=lambda pair: pair[0])
        boundary = closest.energy.boundary if closest.energy is not None else ""
        raise MeasureError(
            f"--power-cap {cap_w:g}: no variant stays below it; the closest is {closest.title} with "
            f"{watts:.2f} W at the {boundary or 'unknown'} boundary: allow that, use fewer "
            "threads, or set a lower power mode (--power-modes all measures them)"
        )
    return within


def select_backend(
    comparison: EngineComparison,
    backend: str,
    objective: str,
    cap_w: float | None,
    fallback: str,
) -> Choice:
    """Select the verified backend to install.

    `auto` selects the compiled model only if the 95% bound of the comparison shows that it is better.
    Otherwise the user's library stays.

    Args:
        comparison: of the engines.
        backend: that the user requests, or "auto".
        objective: "latency", "energy" or "edp".
        cap_w: greatest mean gross watts of a peer; None for no limit.
        fallback: why there is no compiled model; "" if there is.

    Raises:
        VerifyError: nothing that may be installed gives the right outputs.
        EngineError: no engine of the device can run the model.
        MeasureError: the objective needs energy and the device cannot measure it.
    """
    results = comparison.results
    verified = [name for name in BACKENDS if _may_be_installed(results.get(name))]
    if backend != "auto":
        asked = next((name for name in verified if name == backend), None)
        if asked is None:
            raise _refusal(results, backend, fallback)
        rivals = [name for name in verified if name != asked]
        ratio = None
        if asked == "tvm" and rivals:
            ratio = _bounds(_ratio_to_ours(results, rivals[0], objective))
        return Choice(asked, f"--backend {asked}", ratio)
    if not verified:
        raise _refusal(results, next(iter(results), "tvm"), fallback)
    if "tvm" not in verified:
        return Choice(verified[0], _why_not_ours(results, fallback))
    rivals = [name for name in verified if name != "tvm"]
    if not rivals:
        return Choice("tvm", "the only verified backend for this format")
    rivals = [name for name in rivals if below_cap(results[name], cap_w)]
    if not rivals:
        return Choice("tvm", f"no other verified backend stays below {cap_w:g} W")
    ratios = {name: _ratio_to_ours(results, name, objective) for name in rivals}
    # The rival that does best against ours decides.
    rival = min(ratios, key=lambda name: ratios[name].value)
    lengths = len(comparison.each) if objective == "latency" else 1
    return _decided(rival, ratios[rival], objective, lengths)


def _decided(rival: Backend, ratio: Estimate, objective: str, lengths: int) -> Choice:
    shown = f"{rival} / tvm = {ratio.value:.2f}, 95% bound {ratio.low:.2f} to {ratio.high:.2f}"
    if lengths > 1:
        shown += f", geometric mean over {lengths} lengths"
    word = _PHRASES[objective].engine
    if ratio.shown_more:
        return Choice("tvm", f"tvm {word}: {shown}", _bounds(ratio))
    if ratio.shown_less:
        return Choice(rival, f"{rival} {word}: {shown}", _bounds(ratio))
    return Choice(rival, f"no difference shown, so the library stays: {shown}", _bounds(ratio))


def _bounds(ratio: Estimate) -> tuple[float, float, float]:
    assert ratio.low is not None and ratio.high is not None
    return ratio.value, ratio.low, ratio.high


def _ratio_to_ours(results: Mapping[str, EntrantResult], rival: str, objective: str) -> Estimate:
    """The rival's figure over that of the compiled model, with bounds.

    Raises:
        MeasureError: the device has no such figure, or too few repetitions for a bound.
    """
    theirs, ours = results[rival], results["tvm"]
    for one in (theirs, ours):
        if objective != "latency" and one.energy is not None and one.energy.gross_j is None:
            raise MeasureError(
                f"--objective {objective}: the device has no energy figure ({one.energy.source}); use latency"
            )
    ratio = ratio_between(theirs, ours, objective)
    if ratio is None or not ratio.bounded:
        pairs = 0 if ratio is None else ratio.n
        raise MeasureError(
            f"--objective {objective}: {rival} and tvm have {pairs} figures that can be compared, and a 95% "
            f"bound needs {MIN_TRIALS}; measure again, or use latency"
        )
    return ratio


def _may_be_installed(one: EntrantResult | None) -> bool:
    return (
        one is not None
        and one.deployable
        and one.measurement is not None
        and one.verification is not None
        and one.verification.passed
    )


def require_verified(results: Mapping[str, EntrantResult], backend: str) -> None:
    """Refuse to continue without figures of a verified backend.

    Raises:
        VerifyError: its outputs are wrong.
        EngineError: it could not run.
    """
    if results[backend].measurement is None:
        raise _refusal(results, backend, "")


def _why_not_ours(results: Mapping[str, EntrantResult], fallback: str) -> str:
    if fallback:
        return f"tvm cannot compile it: {fallback}"
    ours = results.get("tvm")
    if ours is None:
        return "tvm was not asked for"
    if ours.verification is not None and not ours.verification.passed:
        return f"tvm gives wrong outputs: {ours.verification.message}"
    return f"tvm cannot run it: {ours.reason}"


def _refusal(results: Mapping[str, EntrantResult], backend: str, fallback: str) -> EngineError | VerifyError:
    one = results.get(backend)
    if one is None:
        reason = fallback if backend == "tvm" and fallback else "it does not read this model's format"
        return EngineError(f"backend {backend} cannot run the model: {reason}; use --backend auto")
    if one.verification is not None and not one.verification.passed:
        return VerifyError(f"backend {backend}: {one.verification.message}; nothing was installed")
    others = "; ".join(f"{name}: {c.reason}" for name, c in results.items() if c.reason)
    also = f" (tvm: {fallback})" if fallback and backend != "tvm" else ""
    return EngineError(f"no engine of the device can run the model: {others or one.reason}{also}")
