"""The figures of one network: ratios, curves and seconds, from the comparisons of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from research.evaluation.baseline import Baseline, BaselineTask
from research.evaluation.comparison import FinalistComparison
from research.evaluation.figures import REACHED, search_curve, speed_curve, tuning_time, weighted_ratio
from research.evaluation.proposals import Selection
from research.evaluation.validity import Validity

TLM = "tlm"
# The language model where it may learn between its measurements.
LEARNING = "tlm-finetuned"


@dataclass(frozen=True, eq=False)
class TaskResult:
    """One task, evaluated.

    Attributes:
        selections: by method and budget.
        comparison: of the finalists, whose names are `finalist(method, budget)`.
        validity: of the first programs that the language model writes.
    """

    selections: Mapping[tuple[str, int], Selection]
    comparison: FinalistComparison
    validity: Validity


def finalist(method: str, budget: int) -> str:
    """Name of a method's program in a comparison."""
    return f"{method}/{budget}"


def network_figures(
    baseline: Baseline,
    results: Mapping[str, TaskResult],
    methods: Sequence[str],
    budgets: Sequence[int],
    load_s: float,
) -> dict[str, Any]:
    """The figures of one network."""
    beside = [_task_figures(entry, results[entry.task.workload_hash]) for entry in baseline.beside]
    weights = {entry.task.workload_hash: entry.task.weight for entry in baseline.tasks}
    results = {key: results[key] for key in weights}
    searched = {key: result.comparison.baseline_s for key, result in results.items()}

    def ratio(method: str, budget: int) -> float | None:
        name = finalist(method, budget)
        ours = {
            key: one.comparison.seconds[name]
            for key, one in results.items()
            if name in one.comparison.seconds
        }
        return weighted_ratio(weights, searched, ours)

    table = {str(budget): {method: ratio(method, budget) for method in methods} for budget in budgets}
    most = max(budgets)
    own = [result.selections[TLM, most] for result in results.values()] if TLM in methods else []
    proposed = sum(selection.proposed for selection in own)
    return {
        "budgets": table,
        "coverage": baseline.coverage,
        "valid_share": sum((result.validity for result in results.values()), Validity()).share,
        "seconds_per_proposal": sum(s.propose_s for s in own) / proposed if proposed else None,
        "curves": _curves(baseline, results, searched, methods, most),
        "tuning": _tuning(baseline, results, methods, budgets, table, load_s),
        "machine_of_baseline": dict(baseline.machine),
        "tasks": [_task_figures(entry, results[entry.task.workload_hash]) for entry in baseline.tasks],
        "beside": beside,
    }


def _curves(
    baseline: Baseline,
    results: Mapping[str, TaskResult],
    searched: Mapping[str, float],
    methods: Sequence[str],
    most: int,
) -> dict[str, Any]:
    """Speed by number of measurements, from the own measurements of each method and of the search."""
    weights = {entry.task.workload_hash: entry.task.weight for entry in baseline.tasks}
    histories = [entry.searches[baseline.trials] for entry in baseline.tasks]
    curves: dict[str, Any] = {
        method: speed_curve(
            weights,
            searched,
            {key: one.selections[method, most].best_by_measurement for key, one in results.items()},
        )
        for method in methods
    }
    return {
        **curves,
        "evolutionary": search_curve(histories, [entry.task.weight for entry in baseline.tasks]),
    }


def _tuning(
    baseline: Baseline,
    results: Mapping[str, TaskResult],
    methods: Sequence[str],
    budgets: Sequence[int],
    table: Mapping[str, Mapping[str, float | None]],
    load_s: float,
) -> dict[str, Any]:
    """Seconds of each method, and of the search, to `REACHED` of the searched speed."""
    histories = [entry.searches[baseline.trials] for entry in baseline.tasks]
    search = tuning_time(histories, [entry.task.weight for entry in baseline.tasks])
    seconds = {
        method: {
            str(budget): sum(result.selections[method, budget].seconds for result in results.values())
            + (load_s if method in (TLM, LEARNING) else 0.0)
            for budget in budgets
        }
        for method in methods
    }
    reached: dict[str, Any] = {}
    for method in methods:
        enough = [budget for budget in sorted(budgets) if (table[str(budget)][method] or 0.0) >= REACHED]
        if not enough:
            reached[method] = None
            continue
        own = seconds[method][str(enough[0])]
        reached[method] = {
            "budget": enough[0],
            "seconds": own,
            "times_less_than_whole": search.whole_s / own,
            "times_less_than_whole_cpu": search.whole_cpu_s / own,
            "times_less_than_reached": search.reached_s / own,
            "times_less_than_reached_cpu": search.reached_cpu_s / own,
        }
    return {"share": REACHED, "search": vars(search), "seconds": seconds, "reached": reached}


def _task_figures(entry: BaselineTask, result: TaskResult) -> dict[str, Any]:
    comparison = result.comparison
    methods: dict[str, Any] = {
        name: {"us": seconds * 1e6, "reason": ""} for name, seconds in comparison.seconds.items()
    }
    for (method, budget), selection in result.selections.items():
        name = finalist(method, budget)
        known = comparison.seconds.get(name)
        methods[name] = {
            "us": None if known is None else known * 1e6,
            "decisions": dict(selection.decisions),
            "tuning_s": selection.seconds,
            "reason": comparison.wrong.get(name, selection.reason),
        }
    return {
        "name": entry.task.name,
        "kind": entry.kind,
        "workload": entry.task.workload_hash,
        "weight": entry.task.weight,
        "share": entry.share,
        "baseline_us": comparison.baseline_s * 1e6,
        "max_rel_err": comparison.error,
        "methods": methods,
    }
