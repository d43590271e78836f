"""Latency and energy of finalists in power modes: the points, their front, and which of them is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host.compare.statistics import MIN_TRIALS, Estimate, mean_of, paired_ratio, t975
from host.errors import MeasureError
from host.model import Energy, Measurement, comparable

if TYPE_CHECKING:
    from host.compare.power_modes import PowerMode

# What can be asked for, with the words for less of it.
OBJECTIVES = {
    "latency": "takes less time",
    "energy": "needs less energy",
    "edp": "has a smaller energy-delay product",
}


@dataclass(frozen=True)
class PowerPoint:
    """One variant of the model in one power mode.

    Attributes:
        variant: its name ("fastest programs", "least traffic", "untuned", or an engine's).
        threads: that it used.
        mode: the power mode by name, "" where the device has none.
        candidate: whether it may be deployed; others are shown beside it (the untuned model).
        measurement: all samples; its energy is the mean of the windows.
        rounds_s: median seconds of each round; those of other points of the mode correspond.
        windows: each energy window, in order; those of other points of the mode correspond.
        reason: why it has no measurement, or was left out of the choice; "" otherwise.
    """

    variant: str
    threads: int
    mode: str
    candidate: bool = True
    measurement: Measurement | None = None
    rounds_s: tuple[float, ...] = ()
    windows: tuple[Measurement, ...] = ()
    reason: str = ""

    @property
    def name(self) -> str:
        """For people: variant, threads and mode."""
        where = f", {self.mode}" if self.mode else ""
        return f"{self.variant}, {self.threads} thread{'s' if self.threads > 1 else ''}{where}"

    @property
    def latency_s(self) -> Estimate | None:
        """Seconds of one run with the 95% bounds over rounds."""
        return mean_of(self.rounds_s) if self.rounds_s else None

    @property
    def energy(self) -> Energy | None:
        """Of one run, as the windows' mean; None where it was not measured."""
        return None if self.measurement is None else self.measurement.energy

    @property
    def gross_j(self) -> Estimate | None:
        """Joules of one run within the boundary, with the 95% bounds over windows."""
        joules = self.window_joules
        return mean_of(joules) if joules else None

    @property
    def net_j(self) -> Estimate | None:
        """Joules above idle; None where they cannot be told from idle."""
        above = [one.energy.above_idle_j for one in self.windows]
        known = [value for value in above if value is not None and value > 0]
        return mean_of(known) if known and len(known) == len(above) else None

    @property
    def window_joules(self) -> tuple[float, ...]:
        """Gross joules of one run in each window; empty where a window has none."""
        known = tuple(one.energy.gross_j for one in self.windows if one.energy.gross_j)
        return known if len(known) == len(self.windows) else ()

    @property
    def blind(self) -> str:
        """Why it has no energy though windows were taken; "" where it has, or none were."""
        if not self.windows or self.window_joules:
            return ""
        missing = [one.energy for one in self.windows if not one.energy.gross_j]
        return missing[0].reason or missing[0].source

    @property
    def mean_w(self) -> float | None:
        """Mean gross watts over the windows, within the boundary."""
        return None if self.energy is None else self.energy.mean_w

    @property
    def edp_js(self) -> float | None:
        """Energy-delay product of one run: gross joules times seconds."""
        if self.gross_j is None or self.latency_s is None:
            return None
        return self.gross_j.value * self.latency_s.value

    @property
    def trusted(self) -> bool:
        """Whether the device ran as it can, in the rounds and in every window."""
        return (
            self.measurement is not None
            and self.measurement.trusted
            and all(one.trusted for one in self.windows)
        )

    def value(self, objective: str) -> float | None:
        """What an objective goes by; None where it is not known."""
        if objective == "latency":
            return None if self.latency_s is None else self.latency_s.value
        if objective == "energy":
            return None if self.gross_j is None else self.gross_j.value
        return self.edp_js

    def trials(self, objective: str) -> tuple[float, ...]:
        """Repetitions that correspond to those of the other points of a mode."""
        if objective == "latency":
            return self.rounds_s
        joules = self.window_joules
        if objective == "energy" or not joules:
            return joules
        return tuple(j * one.median_s for j, one in zip(joules, self.windows, strict=True))


@dataclass(frozen=True)
class ParetoFront:
    """Which points no other one beats in both latency and energy.

    Attributes:
        points: all that took part, in the order given.
        front: the undominated ones, fastest first.
        dominated: for each of the others, the point that is better in one and no worse in the other.
        reason: why there is no front; "" where there is one.
    """

    points: tuple[PowerPoint, ...]
    front: tuple[PowerPoint, ...] = ()
    dominated: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class PowerResult:
    """What was measured of the finalists.

    Attributes:
        objective: "latency", "energy" or "edp".
        cap_w: greatest mean gross watts; None for no limit.
        points: every variant in every mode; those of the device's own mode first.
        home: the mode that the device was in, and is in again.
        taken: the point that is deployed; None where nothing was to be chosen.
        why: one sentence.
        modes: every mode that the agent lists.
        gain: time of the untuned model over that of the deployed one, with bounds; None where not tuned.
        energy_gain: the same of energy; None where energy is unavailable.
        remarks: what the user should know, told already while it was measured.
        advice: a power mode that would serve the objective better, "" for none.
    """

    objective: str
    points: tuple[PowerPoint, ...]
    home: str = ""
    cap_w: float | None = None
    taken: PowerPoint | None = None
    why: str = ""
    modes: tuple[PowerMode, ...] = ()
    gain: Estimate | None = None
    energy_gain: Estimate | None = None
    remarks: tuple[str, ...] = ()
    advice: str = ""

    @property
    def front(self) -> ParetoFront:
        """Over all modes."""
        return pareto([point for point in self.points if point.candidate])

    def allowed(self, point: PowerPoint) -> bool:
        """Whether a point is below the cap."""
        return self.cap_w is None or (point.mean_w is not None and point.mean_w <= self.cap_w)


def pareto(points: Sequence[PowerPoint]) -> ParetoFront:
    """The front of latency and gross energy.

    A point is dominated if another one is no worse in both and better in one; points that are equal in both
    stay. Throttled points and those without energy take no part. Bounds are not looked at: who is within
    noise of the front is to be seen by the bars in the report.

    Args:
        points: of one boundary.
    """
    known = [point for point in points if point.trusted and point.gross_j is not None and point.latency_s]
    if not known:
        return ParetoFront(tuple(points), reason=_no_front(points))
    mixed = next(filter(None, (comparable(_energy(known[0]), _energy(one)) for one in known)), None)
    if mixed is not None:
        return ParetoFront(tuple(points), reason=mixed)
    ordered = sorted(known, key=_pair)
    front: list[PowerPoint] = []
    dominated: dict[str, str] = {}
    for point in ordered:
        better = next((one for one in front if _dominates(_pair(one), _pair(point))), None)
        if better is None:
            front.append(point)
        else:
            dominated[point.name] = better.name
    return ParetoFront(tuple(points), tuple(front), dominated)


def _no_front(points: Sequence[PowerPoint]) -> str:
    energies = [point.energy for point in points if point.energy is not None]
    missing = [energy.reason or energy.source for energy in energies if energy.gross_j is None]
    if missing or not energies:
        return next(iter(missing), "nothing was measured")
    return "the board throttled in every measurement"


def spread_of(energy: Energy) -> Estimate | None:
    """Joules of a run as the agent averaged its trials, with 95% bounds from their spread; None without."""
    if energy.gross_j is None:
        return None
    trials = energy.trials or 1
    if energy.std_j is None or trials < MIN_TRIALS:
        return Estimate(energy.gross_j, n=trials)
    half = t975(trials - 1) * energy.std_j / math.sqrt(trials)
    return Estimate(energy.gross_j, energy.gross_j - half, energy.gross_j + half, trials)


def _energy(point: PowerPoint) -> Energy:
    assert point.energy is not None
    return point.energy


def _pair(point: PowerPoint) -> tuple[float, float]:
    assert point.latency_s is not None and point.gross_j is not None
    return point.latency_s.value, point.gross_j.value


def _dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and a != b


def take(points: Sequence[PowerPoint], objective: str, cap_w: float | None = None) -> tuple[PowerPoint, str]:
    """The point to deploy out of those of one mode, and why.

    The fastest one is taken, unless the 95% bound of the paired ratio shows that another one is better by the
    objective. Where the bound leaves it open, nothing is gained by being slower.

    Args:
        points: of one mode, in one run.
        objective: "latency", "energy" or "edp".
        cap_w: greatest mean gross watts.

    Raises:
        MeasureError: no point has the figure, or none is below the cap.
    """
    usable = [point for point in points if point.candidate and point.measurement is not None]
    if not usable:
        reasons = "; ".join(f"{point.name}: {point.reason}" for point in points) or "there is none"
        raise MeasureError(f"no variant of the model could be measured ({reasons}); measure again")
    usable = [point for point in usable if point.trusted] or usable
    if cap_w is not None:
        usable = below(usable, cap_w)
    known = [point for point in usable if point.value(objective) is not None]
    if not known:
        source = _energy(usable[0]).reason or _energy(usable[0]).source
        raise MeasureError(
            f"--objective {objective}: no variant has an energy figure ({source}); use latency"
        )
    fastest = min(known, key=lambda point: point.value("latency") or math.inf)
    best, why = fastest, ""
    for point in known:
        ratio = _ratio(point, fastest, objective)
        if point is fastest or ratio is None or ratio.high is None or ratio.high >= 1.0:
            continue
        if (point.value(objective) or 0.0) < (best.value(objective) or 0.0):
            best = point
            why = (
                f"{point.name} {OBJECTIVES[objective]} than the fastest variant: {ratio.value:.3f} times, "
                f"95% bound {ratio.low:.3f} to {ratio.high:.3f}"
            )
    if why:
        return best, why
    if len(known) == 1:
        return best, f"{best.name} is the only variant" + (f" below {cap_w:g} W" if cap_w else "")
    shown = "" if objective == "latency" else f"; no other {OBJECTIVES[objective]} beyond noise"
    return best, f"{best.name} is the fastest{shown}"


def below(points: Sequence[PowerPoint], cap_w: float) -> list[PowerPoint]:
    """The points within a power cap.

    Raises:
        MeasureError: there is none; names the closest.
    """
    known = [(point.mean_w, point) for point in points if point.mean_w is not None]
    if not known:
        energy = _energy(points[0])
        raise MeasureError(f"--power-cap {cap_w:g}: power is unavailable ({energy.reason or energy.source})")
    within = [point for watts, point in known if watts <= cap_w]
    if not within:
        watts, closest = min(known, key=lambda pair: pair[0])
        raise MeasureError(
            f"--power-cap {cap_w:g}: no variant stays below it; the closest is {closest.name} with "
            f"{watts:.2f} W at the {_energy(closest).boundary or 'unknown'} boundary: allow that, use fewer "
            "threads, or set a lower power mode (--power-modes all measures them)"
        )
    return within


def _ratio(point: PowerPoint, other: PowerPoint, objective: str) -> Estimate | None:
    """The figure of a point over that of another one, paired; None where they do not correspond."""
    mine, theirs = point.trials(objective), other.trials(objective)
    if not mine or len(mine) != len(theirs):
        return None
    return paired_ratio(mine, theirs)


def gain(before: PowerPoint, after: PowerPoint, objective: str) -> Estimate | None:
    """Figure of `before` over that of `after`, from the same run; None where either is not known."""
    return _ratio(before, after, objective)
