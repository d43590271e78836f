"""Figures from the seconds of tasks: weighted ratios of speed, and the time to reach a share of the speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from research.evaluation.baseline import SearchHistory

# Share of the searched speed whose time of tuning is compared.
REACHED = 0.95


@dataclass(frozen=True)
class TuningTime:
    """Seconds of a search: of all, and until the network reached the share of its final speed.

    Attributes:
        whole_s, whole_cpu_s: wall time and processor time of the whole search.
        reached_s, reached_cpu_s: the same until the share is reached.
    """

    whole_s: float
    whole_cpu_s: float
    reached_s: float
    reached_cpu_s: float


def weighted_ratio(
    weights: Mapping[str, int], baseline_s: Mapping[str, float], ours_s: Mapping[str, float]
) -> float | None:
    """Ratio of speed over all tasks: baseline seconds over the method's, weighted by calls in the network.

    None if the method has no time for a task: a figure without the task would be of a different network.
    """
    if any(key not in ours_s for key in weights):
        return None
    ours = sum(weight * ours_s[key] for key, weight in weights.items())
    return sum(weight * baseline_s[key] for key, weight in weights.items()) / ours


def speed_curve(
    weights: Mapping[str, int], baseline_s: Mapping[str, float], histories: Mapping[str, Sequence[float]]
) -> list[float]:
    """Ratio of speed after each measurement of every task; 0 while a task has no program that runs.

    Args:
        weights: calls of each task in the network.
        baseline_s: seconds of one call of the baseline's program.
        histories: seconds of one call of the fastest program after each measurement; a task with fewer keeps
            its last one.
    """
    if any(not histories[key] for key in weights):
        return []
    whole = sum(weight * baseline_s[key] for key, weight in weights.items())
    return [
        whole / sum(w * histories[key][min(number, len(histories[key]) - 1)] for key, w in weights.items())
        for number in range(max(len(histories[key]) for key in weights))
    ]


def search_curve(histories: Sequence[SearchHistory], weights: Sequence[int]) -> list[tuple[int, float]]:
    """Points at which the speed of a search rose: trials of each task, and share of the final speed."""
    final = sum(w * history.by_trial[-1][1] for history, w in zip(histories, weights, strict=True))
    found: list[tuple[int, float]] = []
    for trial in sorted({number for history in histories for number, _ in history.by_trial}):
        best = [[seconds for number, seconds in history.by_trial if number <= trial] for history in histories]
        if all(best):
            now = sum(w * seconds[-1] for seconds, w in zip(best, weights, strict=True))
            found.append((trial, final / now))
    return found


def tuning_time(
    histories: Sequence[SearchHistory], weights: Sequence[int], share: float = REACHED
) -> TuningTime:
    """When searches that progress at the same rate reach a share of their final speed.

    Args:
        histories: one for each task.
        weights: calls of each task in the network.
        share: of the speed of the best programs at the end.
    """
    final = sum(w * history.by_time[-1].seconds for history, w in zip(histories, weights, strict=True))
    parts = sorted(
        {0.0, 1.0, *(one.wall_s / history.wall_s for history in histories for one in history.by_time)}
    )
    for part in parts:
        found = [_best_at(history, part * history.wall_s) for history in histories]
        if any(seconds is None for seconds in found):
            continue
        now = sum(w * seconds for seconds, w in zip(found, weights, strict=True) if seconds is not None)
        if final / now >= share:
            break
    return TuningTime(
        whole_s=sum(history.wall_s for history in histories),
        whole_cpu_s=sum(history.cpu_s for history in histories),
        reached_s=sum(part * history.wall_s for history in histories),
        reached_cpu_s=sum(_processor_at(history, part * history.wall_s) for history in histories),
    )


def _best_at(history: SearchHistory, wall_s: float) -> float | None:
    # The point itself counts, also where the product that it came from was rounded.
    known = [one.seconds for one in history.by_time if one.wall_s <= wall_s * (1 + 1e-9)]
    return known[-1] if known else None


def _processor_at(history: SearchHistory, wall_s: float) -> float:
    """Processor seconds at a wall time, interpolated linearly between the known points."""
    points = [
        (0.0, 0.0),
        *((one.wall_s, one.cpu_s) for one in history.by_time),
        (history.wall_s, history.cpu_s),
    ]
    for (left, low), (right, high) in pairwise(points):
        if wall_s <= right:
            return low + (high - low) * (wall_s - left) / (right - left) if right > left else high
    return history.cpu_s
