"""Speeds of the programs of one model, and their means over models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learned_estimate.withheld import bounded
from benchmarks.trials.paired_runs import run_in_turn
from host.compile.static_model import Plan
from host.compile.tuning.first_programs import by_learned_estimate, take_first_programs
from host.learned_estimate.observation import Observation
from host.progress import Silence, StageClock
from host.statistics import Estimate, paired_ratio
from host.tuning.proposers.random_sampling import RandomSampling
from research.collection.constructed_model import ConstructedModel

_RANKED = 16
# Each figure is the time of one arm over that of another.
_RATIOS = {
    "speed": ("constructed", "learned"),
    "ranked": ("constructed", "ranked"),
    "over_ranked": ("ranked", "learned"),
}


def figures_of(
    model: ConstructedModel, known: Sequence[Observation], folder: Path, seed: int
) -> dict[str, Any]:
    """What the measurements of other models do for one, beside chance.

    Args:
        model: with the constructed programs.
        known: what all models have measured.
        folder: for the bundles.
        seed: of random programs.
    """
    constructed, clock = model.plan, StageClock(Silence())
    others = [
        one for one in known if one.model != model.lowered.name and one.program.task not in constructed.spaces
    ]
    tasks = tuple(constructed.chosen)
    learned, rules = by_learned_estimate(constructed, tasks, others, model.profile, seed, clock)
    open_tasks = [key for key in tasks if constructed.spaces[key].rule.name in rules]
    chance = RandomSampling(_RANKED)
    ranked = take_first_programs(chance, constructed, open_tasks, model.profile, seed, clock)
    figures = {
        "taught_by": len(others),
        "rules": sorted(rules),
        "kernels": len(tasks),
        "open": len(open_tasks),
        "changed": _changed(constructed, learned),
        "changed_at_random": _changed(constructed, ranked),
    }
    if not rules:
        return figures | {name: _plain(Estimate(1.0)) for name in _RATIOS}
    plans = {"constructed": constructed, "learned": learned, "ranked": ranked}
    bundles = [model.bundle(plan, folder / name) for name, plan in plans.items()]
    times = dict(zip(plans, run_in_turn(bundles, model.profile.threads), strict=True))
    return figures | {
        name: _plain(paired_ratio(times[slow], times[fast])) for name, (slow, fast) in _RATIOS.items()
    }


def _changed(before: Plan, after: Plan) -> int:
    return sum(before.chosen[key].decisions != after.chosen[key].decisions for key in before.chosen)


def _plain(found: Estimate) -> dict[str, Any]:
    return {"value": found.value, "low": found.low, "high": found.high}


def geometric_means(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The geometric mean of each ratio over the models, with its bounds."""
    return {name: bounded([one[name]["value"] for one in models.values()]) for name in _RATIOS}
