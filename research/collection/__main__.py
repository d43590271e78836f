"""Measure programs of the tasks of models: `python -m research.collection FILE MODEL... [options]`.

FILE grows by a line a program and can be continued. A MODEL is a path. With `--engine ray://HEAD`, programs
are built on the hosts of a cluster, and timed from the one that reaches the device.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from host.compile.device_profile import profile_of
from host.options.engine import LOCAL, check_engine
from host.tuning.runners.reach import open_reach
from research.collection.collect import BenchTimer, Collector, Timer, tasks_in
from research.collection.hosted import HostedTimer
from research.evaluation.bench import MeasurePlan, open_bench, restricted


def main() -> None:
    """Collect until every task has its programs or time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--device", default="local")
    parser.add_argument("--engine", default=LOCAL, help="local, ray, or ray://HEAD")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--restrict", default="", help="avx2: leave the newer instructions unused")
    parser.add_argument("--sweeps", type=int, default=4, help="of 24 programs a task")
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    until = time.monotonic() + 60.0 * options.minutes
    check_engine(options.engine)
    with (
        open_reach(options.engine, [options.device]) as reach,
        reach.connect(options.device) as device,
        tempfile.TemporaryDirectory(prefix="edgetlm-") as folder,
        ExitStack() as opened,
    ):
        profile = restricted(profile_of(device, options.threads), device.describe(), options.restrict)
        tasks = tasks_in(options.models, profile)
        print(f"{len(tasks)} tasks")
        timer: Timer = HostedTimer(reach, device, profile)
        if options.engine == LOCAL:
            bench = opened.enter_context(open_bench(device, profile, Path(folder), MeasurePlan()))
            timer = BenchTimer(bench)
        collector = Collector(timer, profile, tasks, options.file, print)
        collector.run(options.sweeps, until)
    print(f"{collector.measured} programs")


if __name__ == "__main__":
    main()
