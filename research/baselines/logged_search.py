"""A search with a log of its history: wall time and processor time of each trial."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tvm
import tvm_ffi

from host.errors import MeasureError
from host.execution.cores import usable_cores
from host.measure.kernels import KernelRunner
from host.model import Measurement, Task
from research.evaluation.baseline import Improvement, SearchHistory
from research.evaluation.comparison import program_of_record
from research.metaschedule import FAILED_S, SearchOptions, search

# Programs that a file keeps of each search: the fastest by one measurement is often a lucky one.
KEPT = 3


@dataclass
class Elapsed:
    """Seconds since the search began, those of earlier runs of it included.

    Args:
        wall_s, cpu_s: of the earlier runs.
    """

    wall_s: float
    cpu_s: float

    def __post_init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), processor_seconds()

    def now(self) -> tuple[float, float]:
        """Wall time, and processor time of this process and its descendants."""
        return (
            self.wall_s + time.monotonic() - self._wall,
            self.cpu_s + processor_seconds() - self._cpu,
        )


def processor_seconds() -> float:
    """Processor seconds of this process and its descendants, ended ones too."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue  # it ended between the listing and the reading, its parent has its seconds
    return total


class LoggedRunner(KernelRunner):
    """Measures programs, and writes a line for each.

    Attributes:
        log: the file; set before each search.
        elapsed: clock of the search.
    """

    log: Path
    elapsed: Elapsed

    def measure(self, *arguments: Any, **options: Any) -> Measurement:
        """See `KernelRunner.measure`."""
        seconds: float | None = None
        try:
            measurement = super().measure(*arguments, **options)
            seconds = min(measurement.times_s)
        finally:
            wall_s, cpu_s = self.elapsed.now()
            line = {"wall_s": round(wall_s, 3), "cpu_s": round(cpu_s, 3), "seconds": seconds}
            with self.log.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return measurement


def search_task(
    task: Task,
    target: tvm.target.Target,
    threads: int,
    runner: LoggedRunner,
    records: Path,
    trials: int,
    seed: int,
    cost_model: str = "xgb",
) -> None:
    """Search until so many trials are recorded; does nothing if they are.

    Args:
        task: the unscheduled function.
        target: what to compile for.
        threads: of every program.
        runner: of an open session.
        records: folder of this task.
        trials: programs in all.
        seed: of every random choice.
        cost_model: of the search, "xgb" or "random".

    Raises:
        MeasureError: MetaSchedule fails on this task.
        DeviceError: the device went away.
    """
    stage = stage_path(records, trials)
    if stage.is_file():
        return
    records.mkdir(parents=True, exist_ok=True)
    before = _log(records)
    runner.log = records / "trials.jsonl"
    # Without a last line that was cut short, which the next one would go on from.
    runner.log.write_text("".join(json.dumps(line) + "\n" for line in before))
    runner.elapsed = Elapsed(before[-1]["wall_s"], before[-1]["cpu_s"]) if before else Elapsed(0.0, 0.0)
    workers = usable_cores()
    options = SearchOptions(
        trials=trials,
        seed=seed,
        workers=workers,
        search_threads=workers,
        repeat=12,
        min_repeat_ms=2.0,
        cost_model=cost_model,
    )
    result = search(task, target, threads, runner, records, options)
    if not result.programs:
        raise MeasureError(f"none of {result.trials} trials of {task.name} gave a program that runs")
    wall_s, cpu_s = runner.elapsed.now()
    stage.write_text(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "cores": workers}) + "\n")


def stage_path(records: Path, trials: int) -> Path:
    """The file that marks the completion of so many trials, with their duration."""
    return records / f"stage-{trials}.json"


def history_of(task: Task, records: Path, trials: int) -> SearchHistory:
    """The history of the first so many recorded trials."""
    stage = json.loads(stage_path(records, trials).read_text())
    # As it was written: MetaSchedule's own database gives records in the order of their speed.
    lines = (records / "database_tuning_record.json").read_text().splitlines()[:trials]
    on_record = [json.loads(line)[1] for line in lines]
    seconds = [float(np.median(record[1])) for record in on_record]
    # A search that was killed measured programs of a batch that never came on record.
    known = set(seconds)
    log = [one for one in _log(records) if one["wall_s"] <= stage["wall_s"] and one["seconds"] in known]
    faster = _improvements([one["seconds"] for one in log])
    return SearchHistory(
        trials=len(on_record),
        failed=sum(value >= FAILED_S for value in seconds),
        wall_s=stage["wall_s"],
        cpu_s=stage["cpu_s"],
        by_trial=tuple(
            (place + 1, seconds[place]) for place in _improvements(seconds) if seconds[place] < FAILED_S
        ),
        by_time=tuple(Improvement(**log[place]) for place in faster),
        records=_best(task, on_record, seconds),
    )


def _best(task: Task, on_record: list[Any], seconds: list[float]) -> tuple[Any, ...]:
    """Records of the fastest distinct programs."""
    programs: list[Any] = []
    kept: list[Any] = []
    for place in sorted(range(len(seconds)), key=lambda place: seconds[place]):
        if len(kept) == KEPT or seconds[place] >= FAILED_S:
            break
        program = program_of_record(task, on_record[place])
        if not any(tvm_ffi.structural_equal(program, other) for other in programs):
            programs.append(program)
            kept.append(on_record[place])
    return tuple(kept)


def _improvements(values: list[float]) -> list[int]:
    """Positions of values that are less than all earlier ones."""
    least = list(accumulate(values, min))
    return [place for place, value in enumerate(values) if place == 0 or value < least[place - 1]]


def _log(records: Path) -> list[dict[str, Any]]:
    path = records / "trials.jsonl"
    if not path.is_file():
        return []
    entries = []
    for line in path.read_text().splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue  # cut short by the end of the process
    return entries
