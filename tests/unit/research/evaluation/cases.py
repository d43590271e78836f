"""Baselines made by hand, for what needs no device."""

from __future__ import annotations

from dataclasses import replace

from host.lowering.tasks import flops
from host.model import Task
from research.evaluation.baseline import Baseline, BaselineTask, Improvement, SearchHistory
from tests.unit.schedules import functions as fn


def dense_task(rows: int = 24, weight: int = 3) -> Task:
    """A small matrix product."""
    function = fn.dense(rows, 64, 32)
    return replace(fn.task(function, f"dense{rows}"), weight=weight, flops=flops(function))


def history(*points: tuple[float, float], wall_s: float = 10.0) -> SearchHistory:
    """A search that found programs at these seconds of the clock; the processor was busy half of the time."""
    return SearchHistory(
        trials=8,
        failed=1,
        wall_s=wall_s,
        cpu_s=wall_s / 2,
        by_trial=tuple((number, seconds) for number, (_, seconds) in enumerate(points, 1)),
        by_time=tuple(Improvement(wall, wall / 2, seconds) for wall, seconds in points),
        records=([0, [1.5]],),
    )


def baseline(*tasks: Task, trials: int = 8) -> Baseline:
    """A baseline of these tasks, the search of each ending at 10 us."""
    entries = tuple(
        BaselineTask(task, "matmul", 0.4, 2e-5, {trials: history((1.0, 2e-5), (5.0, 1e-5))}) for task in tasks
    )
    return Baseline("tiny", trials, 1, {"kind": "llvm"}, {"cpu": "test"}, 0.8, 1e-3, entries)
