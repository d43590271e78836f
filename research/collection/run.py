"""A collection from the models to the file: what `sdk tlm collect` does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from host.compile.device_profile import profile_of
from host.errors import UserError
from host.model_file.formats import check_file
from host.options.engine import LOCAL, check_engine
from host.tuning.runners.reach import open_reach
from research.collection.collect import BenchTimer, Collector, Timer, tasks_in
from research.collection.hosted import HostedTimer
from research.evaluation.bench import MeasurePlan, open_bench, restricted


@dataclass(frozen=True)
class CollectOptions:
    """What is collected.

    Attributes:
        models: files whose tasks are measured.
        file: that grows by a line a program; a run goes on with what is in it.
        device: that measures.
        engine: "local", "ray", or "ray://HEAD": on whose hosts programs are built.
        threads: of the programs; 0 for all of the device's.
        restrict: part of the processor that is used, as "avx2"; "" for all of it.
        sweeps: of 24 programs a task.
        minutes: after which no further task is begun.
    """

    models: tuple[Path, ...]
    file: Path
    device: str = "local"
    engine: str = LOCAL
    threads: int = 1
    restrict: str = ""
    sweeps: int = 4
    minutes: float = 60.0


def collect(options: CollectOptions, note: Callable[[str], None]) -> int:
    """Measure programs of the models' tasks until each has its programs or time is up.

    Args:
        options: of the collection.
        note: receives lines of progress, and one about each program that fails.

    Returns:
        Programs that were measured now.

    Raises:
        UserError: a file, the engine or the restriction is wrong, or no model has a task with decisions.
        DeviceError: the device is not reached, or is lost; what was measured is in the file.
    """
    until = time.monotonic() + 60.0 * options.minutes
    check_engine(options.engine)
    for path in options.models:
        check_file(path)
    with (
        open_reach(options.engine, [options.device]) as reach,
        reach.connect(options.device) as device,
        tempfile.TemporaryDirectory(prefix="edgetlm-") as folder,
        ExitStack() as opened,
    ):
        profile = restricted(profile_of(device, options.threads), device.describe(), options.restrict)
        tasks = tasks_in(options.models, profile)
        if not tasks:
            raise UserError("no model has a task with decisions: nothing can be measured")
        note(f"{len(tasks)} tasks")
        timer: Timer = HostedTimer(reach, device, profile)
        if options.engine == LOCAL:
            bench = opened.enter_context(open_bench(device, profile, Path(folder), MeasurePlan()))
            timer = BenchTimer(bench)
        collector = Collector(timer, profile, tasks, options.file, note)
        collector.run(options.sweeps, until)
    return collector.measured
