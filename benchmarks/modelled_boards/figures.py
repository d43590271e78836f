"""Ratios of the arms' times, by board and over boards."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from host.statistics import mean_of

# Each ratio is the time of the second arm over that of the first: above 1, the first is faster.
RATIOS = (
    ("gensor_that_own_10", "gensor_t"),
    ("gensor_that_own_50", "gensor_t"),
    ("gensor_that_own_200", "gensor_t"),
    ("gensor_that_others", "gensor_t"),
    ("gensor_that_others_10", "gensor_t"),
    ("gensor_that_others_50", "gensor_t"),
    ("gensor_that_others_200", "gensor_t"),
    ("search_that", "gensor_t"),
    ("gensor_that_shuffled", "gensor_t"),
    ("random_first", "gensor_t"),
    ("random32_t", "gensor_t"),
    ("random32_that", "gensor_t"),
    ("random32_that", "random32_t"),
    ("infilled_random32_that", "random32_that"),
    ("tlm_likelihood", "gensor_t"),
    ("tlm32_t", "random32_t"),
    ("tlm32_t", "infilled_random32_t"),
    ("tlm32_that", "gensor_t"),
    ("tlm32_that", "random32_t"),
    ("tlm32_that", "random32_that"),
    ("tlm32_that", "infilled_random32_that"),
    ("search_that", "tlm32_that"),
)
ALL = "all"


@dataclass(frozen=True)
class Judged:
    """One task on one board with one seed.

    Attributes:
        board, model, task: which.
        rule: of its space.
        seconds: by arm.
    """

    board: str
    model: str
    task: str
    rule: str
    seconds: Mapping[str, float]


def ratios(
    judged: Sequence[Judged], pairs: Sequence[tuple[str, str]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Each ratio by board, and over all: geometric means over tasks with 95% intervals, and medians.

    Args:
        judged: tasks on boards.
        pairs: of arms, the time of the second over that of the first.
    """
    boards = sorted({one.board for one in judged})
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for faster, slower in pairs:
        by_board = {
            board: logs
            for board in boards
            if (logs := _logs([one for one in judged if one.board == board], faster, slower))
        }
        if by_board:
            every = [log for logs in by_board.values() for log in logs]
            found[f"{faster}/{slower}"] = {
                name: _bounded(logs) for name, logs in {**by_board, ALL: every}.items()
            }
    return found


def _logs(judged: Sequence[Judged], faster: str, slower: str) -> list[float]:
    """Logarithm of the ratio of each task, the mean over seeds."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for one in judged:
        if faster in one.seconds and slower in one.seconds:
            by_task[one.task].append(math.log(one.seconds[slower] / one.seconds[faster]))
    return [sum(logs) / len(logs) for logs in by_task.values()]


def _bounded(logs: Sequence[float]) -> dict[str, Any]:
    values = sorted(math.exp(log) for log in logs)
    mean = mean_of(values)
    middle = len(values) // 2
    median = values[middle] if len(values) % 2 else math.sqrt(values[middle - 1] * values[middle])
    return {
        "geomean": mean.value,
        "median": median,
        "low": mean.low,
        "high": mean.high,
        "least": values[0],
        "tasks": len(values),
    }


def shares(judged: Sequence[Judged], known: Sequence[Judged] | None = None) -> dict[str, dict[str, float]]:
    """Time of the fastest program of any arm and seed over that of each arm, by board: geometric means.

    Args:
        judged: tasks on boards.
        known: the same tasks with all programs that are known; None for the judged ones alone.
    """
    return {
        arm: {board: math.exp(statistics.fmean(of.values())) for board, of in by_board.items()}
        for arm, by_board in _share_logs(judged, judged if known is None else known).items()
    }


def worst(judged: Sequence[Judged], known: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """The least share of a task, see `shares`: a geometric mean over its seeds."""
    return {
        arm: {board: math.exp(min(of.values())) for board, of in by_board.items()}
        for arm, by_board in _share_logs(judged, known).items()
    }


def _share_logs(
    judged: Sequence[Judged], known: Sequence[Judged]
) -> dict[str, dict[str, dict[tuple[str, str], float]]]:
    """Logarithm of the share of each task, the mean over seeds, by arm and board."""
    best: dict[tuple[str, str], float] = defaultdict(lambda: math.inf)
    for one in known:
        best[one.board, one.task] = min(best[one.board, one.task], *one.seconds.values())
    logs: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in judged:
        for arm, seconds in one.seconds.items():
            task = one.board, one.task
            logs[arm][task].append(math.log(best[task] / seconds))
    boards = sorted({one.board for one in judged})
    found: dict[str, dict[str, dict[tuple[str, str], float]]] = {}
    for arm, by_task in sorted(logs.items()):
        means = {task: statistics.fmean(of) for task, of in by_task.items()}
        own = {board: {task: one for task, one in means.items() if task[0] == board} for board in boards}
        found[arm] = {ALL: means, **{board: of for board, of in own.items() if of}}
    return found
