"""What became of a model's plan, for people and programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from host.model import Site
from host.plans.plan import ModelPlan
from host.plans.records import PlanTrial

# By objective: what a plan on record was measured as, and what a ratio is of.
_MEASURED_AS = {
    "latency": "the fastest",
    "energy": "the one that needs least energy",
    "edp": "the one with the smallest energy-delay product",
}
_FIGURES = {"latency": "time", "energy": "energy", "edp": "energy-delay product"}


@dataclass(frozen=True)
class PlanOutcome:
    """The plan that a model was compiled with, and why.

    Attributes:
        plan: its departures from the passes.
        trace: all its decisions in words; "" where the model leaves none open.
        why: one sentence.
        trials: the plans that were measured as whole models; empty where none was.
    """

    plan: ModelPlan
    trace: str
    why: str
    trials: tuple[PlanTrial, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """For people: the plan and why, and each that was measured; none where the passes decided alone."""
        if self.plan.is_own and not self.trials:
            return ()
        lines = [f"{self.plan.name}: {self.why}"]
        for one in self.trials:
            proposed, measured_ms = one.proposed, one.measurement.median_s * 1e3
            line = f"{proposed.plan.name}, by {proposed.proposer}: {measured_ms:.3f} ms"
            line += f" (estimate {proposed.estimate.total_s * 1e3:.3f})"
            if one.ratio is not None and one.ratio.bounded:
                bounds = f"{one.ratio.low:.3f} to {one.ratio.high:.3f}"
                line += f", {one.ratio.value:.3f} ({bounds}) of the {_FIGURES[one.objective]} before"
            lines.append(line)
        return tuple(lines)

    def data(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            **plan_data(self.plan, self.trace),
            "why": self.why,
            "trials": [
                {
                    "plan": one.proposed.plan.name,
                    "proposer": one.proposed.proposer,
                    "estimate_ms": one.proposed.estimate.total_s * 1e3,
                    "median_ms": one.measurement.median_s * 1e3,
                    "ratio": None
                    if one.ratio is None
                    else {"value": one.ratio.value, "low": one.ratio.low, "high": one.ratio.high},
                    "objective": one.objective,
                    "taken": one.taken,
                }
                for one in self.trials
            ],
        }


def outcome_of(
    sites: Sequence[Site], objective: str = "latency", why: str = "", trials: Iterable[PlanTrial] = ()
) -> PlanOutcome | None:
    """The plan with which a model was lowered; None where it has no sites.

    Args:
        sites: of the lowered model.
        objective: "latency", "energy" or "edp".
        why: where plans were measured, the reason of the choice.
        trials: the plans that were measured.
    """
    if not sites:
        return None
    plan = ModelPlan.of(sites)
    if not why:
        recorded = f"it was measured as {_MEASURED_AS[objective]} before, as a whole model"
        why = "no other plan is on record" if plan.is_own else recorded
    return PlanOutcome(plan, plan.trace(sites), why, tuple(trials))


def plan_data(plan: ModelPlan, trace: str) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        "name": plan.name,
        "hash": plan.hash,
        "version": plan.version,
        "decisions": dict(plan.decisions),
        "trace": trace,
    }
