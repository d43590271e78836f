"""Comparison of finalists of one task with the searched baseline: check the results, then measure in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import s_tir
from tvm.s_tir import meta_schedule as ms

from host.errors import BuildError, EdgeError, MeasureError, SessionLost
from host.model import Task
from research.evaluation.baseline import BaselineTask
from research.evaluation.bench import TOLERANCE, Bench, Built, difference
from research.metaschedule import FUNCTION, register_intrinsics, workload_module

# Passes over the baseline's best programs, of which the fastest takes part.
_PASSES = 3


@dataclass(frozen=True, eq=False)
class FinalistComparison:
    """The result of the rounds.

    Attributes:
        baseline_s: seconds of one call of the baseline's program.
        seconds: of one call, by finalist.
        wrong: reasons for finalists that cannot be run, or whose results differ from the baseline's.
        error: largest difference of results from the baseline's, relative to the largest value.
    """

    baseline_s: float
    seconds: Mapping[str, float]
    wrong: Mapping[str, str]
    error: float


def program_of_record(task: Task, record: Any) -> tvm.tirx.PrimFunc:
    """The program of one of MetaSchedule's records.

    Raises:
        EdgeError: the record does not fit the task.
    """
    module = workload_module(task.function, task.flops)
    try:
        found = ms.database.TuningRecord.from_json(record, ms.database.Workload(module))
        schedule = s_tir.Schedule(module, error_render_level="none")
        found.trace.apply_to_schedule(schedule, remove_postproc=False)
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise EdgeError(f"a record of {task.name} does not make a program: {first}") from error
    return schedule.mod[FUNCTION]


def baseline_program(bench: Bench, entry: BaselineTask, trials: int) -> Built:
    """The fastest of the search's best programs, measured again, because ranks of a search are noisy.

    Raises:
        EdgeError: none of the programs can be run on this device.
    """
    records = entry.searches[trials].records
    if any("Tensorize" in str(record) for record in records):
        register_intrinsics(bench.profile.board.architecture)
    found: list[tuple[float, Built]] = []
    reason = ""
    for record in records:
        try:
            built = bench.build(program_of_record(entry.task, record))
            found.append((min(bench.time(entry.task, built) for _ in range(_PASSES)), built))
        except (BuildError, MeasureError, SessionLost) as error:
            reason = str(error)
    if not found:
        raise EdgeError(f"no baseline program of {entry.task.name} runs on this device: {reason}")
    return min(found, key=lambda pair: pair[0])[1]


def compare_finalists(
    bench: Bench, entry: BaselineTask, baseline: Built, finalists: Mapping[str, Built]
) -> FinalistComparison:
    """Check and measure; finalists with equal programs share their measurement.

    Args:
        bench: the open device.
        entry: the task.
        baseline: program of the search.
        finalists: program by name.

    Raises:
        MeasureError: the baseline's program cannot be run.
        SessionLost: it crashed or hung.
    """
    expected = bench.outputs(entry.task, baseline)
    wrong: dict[str, str] = {}
    worst = 0.0
    programs: dict[str, Built] = {}
    verdicts: dict[str, str] = {baseline.key: ""}
    for name, built in finalists.items():
        if built.key not in verdicts:
            verdicts[built.key], error = _verdict(bench, entry, built, expected)
            worst = max(worst, error)
        if verdicts[built.key]:
            wrong[name] = verdicts[built.key]
        else:
            programs[built.key] = built
    times = bench.side_by_side(entry.task, {**programs, baseline.key: baseline})
    medians = {key: float(np.median(samples)) for key, samples in times.items()}
    seconds = {name: medians[built.key] for name, built in finalists.items() if name not in wrong}
    return FinalistComparison(medians[baseline.key], seconds, wrong, worst)


def _verdict(
    bench: Bench, entry: BaselineTask, built: Built, expected: list[np.ndarray]
) -> tuple[str, float]:
    """Why a program cannot be compared, "" if it can; and its difference."""
    try:
        error = difference(bench.outputs(entry.task, built), expected)
    except (MeasureError, SessionLost) as failure:
        return str(failure), 0.0
    if error > TOLERANCE:
        return f"its results are off by {error:.1e} of the largest value", 0.0
    return "", error
