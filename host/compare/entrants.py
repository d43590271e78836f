"""The entrants of a comparison and their results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from host.compare.verification import Verification
from host.model import Energy, Measurement, Start, comparable
from host.statistics import Estimate, mean_of, paired_ratio


@dataclass(frozen=True, eq=False)
class Entrant:
    """One form of the model: an engine with the file that it runs.

    Attributes:
        name: of the engine, or of the variant.
        engine: that runs the model.
        path: bundle directory for "tvm", model file for other engines.
        threads: of the engine.
        deployable: whether it may be deployed; others are measured for comparison only.
        trust: in the signer of a bundle: "signed" or "unsigned".
        instead_of: name of the entrant that stays unless this one is shown to be better; "" for none.
    """

    name: str
    engine: str
    path: Path
    threads: int
    deployable: bool = True
    trust: str = "signed"
    instead_of: str = ""

    @property
    def key(self) -> str:
        """Distinguishes the entrants of one comparison."""
        return f"{self.name}/{self.threads}"

    @property
    def must_verify(self) -> bool:
        """Whether wrong outputs exclude it; they do not exclude a peer with a file of its own."""
        return self.deployable or self.engine == "tvm"


@dataclass(frozen=True, eq=False)
class EntrantResult:
    """The figures of one entrant under one condition.

    Attributes:
        name: of the entrant.
        measurement: all samples; its energy is the mean of the windows. None if it could not run.
        verification: its outputs against the golden ones; None if it never ran.
        reason: why it could not run; "" otherwise.
        rounds_s: median seconds of each round; those of other entrants correspond.
        windows: each energy window, in order; those of other entrants correspond.
        threads: of the engine.
        mode: name of the power mode, "" if the device has none.
        deployable: whether it may be deployed.
        start: how long it took to its first output; None where that is not known.
        instead_of: as of the entrant.
    """

    name: str
    measurement: Measurement | None = None
    verification: Verification | None = None
    reason: str = ""
    rounds_s: tuple[float, ...] = ()
    windows: tuple[Measurement, ...] = ()
    threads: int = 1
    mode: str = ""
    deployable: bool = True
    start: Start | None = None
    instead_of: str = ""

    @property
    def title(self) -> str:
        """For people: name, threads and mode."""
        where = f", {self.mode}" if self.mode else ""
        return f"{self.name}, {self.threads} thread{'s' if self.threads > 1 else ''}{where}"

    @property
    def why_excluded(self) -> str:
        """Why it has no figures: it could not run, or its outputs are wrong; "" if it has figures."""
        if self.verification is not None and not self.verification.passed and self.measurement is None:
            return f"it gives wrong outputs: {self.verification.message}"
        return self.reason

    @property
    def latency_s(self) -> Estimate | None:
        """Seconds of one run with the 95% bounds over rounds."""
        return mean_of(self.rounds_s) if self.rounds_s else None

    @property
    def energy(self) -> Energy | None:
        """Energy of one run, the mean over the windows; None if it was not measured."""
        return None if self.measurement is None else self.measurement.energy

    def without_energy(self, reason: str) -> EntrantResult:
        """The same with the reason why the device has no energy, if none was requested."""
        if self.measurement is None:
            return self
        energy = Energy("unavailable", None, None, reason, reason=reason)
        return replace(self, measurement=replace(self.measurement, energy=energy))

    @property
    def gross_j(self) -> Estimate | None:
        """Joules of one run within the boundary, with the 95% bounds over windows."""
        joules = self.window_joules
        return mean_of(joules) if joules else None

    @property
    def net_j(self) -> Estimate | None:
        """Joules above idle; None if they cannot be distinguished from idle."""
        above = [one.energy.above_idle_j for one in self.windows]
        known = [value for value in above if value is not None and value > 0]
        return mean_of(known) if known and len(known) == len(above) else None

    @property
    def window_joules(self) -> tuple[float, ...]:
        """Gross joules of one run in each window; empty where a window has none."""
        known = tuple(one.energy.gross_j for one in self.windows if one.energy.gross_j)
        return known if len(known) == len(self.windows) else ()

    @property
    def why_no_energy(self) -> str:
        """Why it has no energy although windows were measured; "" otherwise."""
        if not self.windows or self.window_joules:
            return ""
        missing = next(one.energy for one in self.windows if not one.energy.gross_j)
        return missing.reason or missing.source

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
        """Whether all its measurements are valid: no throttling or under-voltage in rounds and windows."""
        return (
            self.measurement is not None
            and self.measurement.trusted
            and all(one.trusted for one in self.windows)
        )

    def value(self, objective: str) -> float | None:
        """The figure that an objective compares; None if it is unknown."""
        if objective == "latency":
            return None if self.latency_s is None else self.latency_s.value
        if objective == "energy":
            return None if self.gross_j is None else self.gross_j.value
        return self.edp_js

    def trials(self, objective: str) -> tuple[float, ...]:
        """Repetitions of that figure, which correspond to those of the other entrants."""
        if objective == "latency":
            return self.rounds_s
        joules = self.window_joules
        if objective == "energy" or not joules:
            return joules
        return tuple(j * one.median_s for j, one in zip(joules, self.windows, strict=True))


def ratio_between(
    numerator: EntrantResult, denominator: EntrantResult, objective: str = "latency"
) -> Estimate | None:
    """The figure of one entrant over that of another, paired round by round or window by window.

    All selections use this statistic: Student's interval of the mean logarithm of the paired ratios
    (docs/decisions/0010).

    Returns:
        The geometric mean of the paired ratios, without bounds if there are fewer than
        `statistics.MIN_TRIALS` pairs; None if the two do not correspond, or their energies have different
        boundaries.
    """
    mine, theirs = numerator.trials(objective), denominator.trials(objective)
    if not mine or len(mine) != len(theirs):
        return None
    if objective != "latency":
        assert numerator.energy is not None and denominator.energy is not None
        if comparable(numerator.energy, denominator.energy) is not None:
            return None
    return paired_ratio(mine, theirs)
