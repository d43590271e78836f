"""Selection of the deployed variant, by the 95% bounds of a comparison.

There is one rule: the default stays unless the bound of the paired ratio shows that another entrant is better
by the objective. The default among the variants of the compiled model is the fastest one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from host.compare.entrants import EntrantResult, ratio_between
from host.compare.pareto import ParetoFront, pareto
from host.errors import MeasureError
from host.statistics import Estimate

if TYPE_CHECKING:
    from host.compare.power_modes import PowerMode
    from host.transport import Device


@dataclass(frozen=True)
class Phrases:
    """The phrases for an objective in messages: about a variant, about an engine, and for what is saved."""

    variant: str
    engine: str
    saved: str


_EDP = "has a smaller energy-delay product"
PHRASES = {
    "latency": Phrases("takes less time", "is faster", "the time"),
    "energy": Phrases("needs less energy", "needs less energy", "the energy"),
    "edp": Phrases(_EDP, _EDP, "the energy-delay product"),
}


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
    return f"power mode {best.mode} would save {saved:.0%} of {PHRASES[objective].saved} ({best.title})"


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
            f"{best.title} {PHRASES[objective].variant} than the fastest variant: {ratio.value:.3f} times, "
            f"95% bound {ratio.low:.3f} to {ratio.high:.3f}"
        )
    if len(known) == 1 and left_out:
        return fastest, f"{fastest.title} stays: no other form {PHRASES[objective].variant} beyond noise"
    if len(known) == 1:
        return fastest, f"{fastest.title} is the only variant" + (f" below {cap_w:g} W" if cap_w else "")
    shown = "" if objective == "latency" else f"; no other {PHRASES[objective].variant} beyond noise"
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
