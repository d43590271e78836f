"""What is shown of estimates with learned constants beside the others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from host.statistics import MIN_TRIALS, t975
from research.estimate.withheld import TaskScore


def _figure(values: Iterable[float]) -> dict[str, float | None]:
    """Mean with its 95% interval by Student, median and largest of a figure over tasks.

    A figure that some tasks do not have (NaN) is that of the others.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return dict.fromkeys(("mean", "low", "high", "median", "most"))
    mean, half = statistics.fmean(known), math.inf
    if len(known) >= MIN_TRIALS:
        half = t975(len(known) - 1) * statistics.stdev(known) / math.sqrt(len(known))
    return {
        "mean": mean,
        "low": mean - half if math.isfinite(half) else None,
        "high": mean + half if math.isfinite(half) else None,
        "median": statistics.median(known),
        "most": max(known),
    }


def _rounded(figure: Mapping[str, float | None], digits: int = 3) -> dict[str, float | None]:
    return {name: None if value is None else round(value, digits) for name, value in figure.items()}


def _times(logs: Iterable[float]) -> dict[str, float | None]:
    """The same of factors, from their logarithms."""
    figure = _figure(logs)
    return _rounded({name: None if log is None else math.exp(log) for name, log in figure.items()}, 4)


def summary(pairs: Sequence[tuple[TaskScore, TaskScore]]) -> dict[str, Any]:
    """Figures over tasks before and after learning.

    Args:
        pairs: the scores of each task, before and after.

    Returns:
        Order and spread, and by the way of choosing the time of the program over that of the fastest, and how
        much faster the program is after learning.
    """
    sides = {"before": [before for before, _ in pairs], "after": [after for _, after in pairs]}
    ways = {
        way: [
            (before.log_costs[way], after.log_costs[way])
            for before, after in pairs
            if way in before.log_costs
        ]
        for way in dict.fromkeys(way for before, _ in pairs for way in before.log_costs)
    }
    return {
        "tasks": len(pairs),
        "programs": sum(before.programs for before, _ in pairs),
        "order": {side: _rounded(_figure(one.order for one in found)) for side, found in sides.items()},
        "spread": {side: _rounded(_figure(one.spread for one in found)) for side, found in sides.items()},
        "ways": {
            way: {
                "tasks": len(costs),
                "before": _times(before for before, _ in costs),
                "after": _times(after for _, after in costs),
                "speed": _times(before - after for before, after in costs),
            }
            for way, costs in ways.items()
        },
    }
