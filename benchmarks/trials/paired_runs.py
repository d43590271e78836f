"""Bundles of one model in one process, run in turn: `python -m benchmarks.trials.paired_runs A B ...`.

Prints JSON: for each block of runs, the median seconds of each bundle. What slows the machine down for more
than a few runs slows all bundles down, so that the ratios of the blocks are known to about 1%.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from device_agent.runtime import Model, load
from host import bundle

# Runs of each bundle in a block.
_RUNS = 10


def block_medians(
    models: Sequence[Model], inputs: Sequence[object], blocks: int, seconds: float
) -> list[list[float]]:
    """Median seconds of each model in each block, shape (blocks, models).

    Args:
        models: loaded.
        inputs: of each run.
        blocks: at most.
        seconds: begin no further block after so many; three blocks are always completed.
    """
    order = random.Random(0)
    found: list[list[float]] = []
    begin = time.perf_counter()
    while len(found) < blocks and (len(found) < 3 or time.perf_counter() - begin < seconds):
        times: list[list[float]] = [[] for _ in models]
        for _ in range(_RUNS):
            for index in order.sample(range(len(models)), len(models)):
                start = time.perf_counter()
                models[index].run(list(inputs))
                times[index].append(time.perf_counter() - start)
        found.append([statistics.median(one) for one in times])
    return found


def run_in_turn(bundles: Sequence[Path], threads: int) -> list[tuple[float, ...]]:
    """Median seconds of each bundle in each block of runs, shape (bundles, blocks).

    The bundles run in a process of their own.
    """
    words = [sys.executable, "-m", "benchmarks.trials.paired_runs", *map(str, bundles)]
    done = subprocess.run([*words, "--threads", str(threads)], check=True, stdout=subprocess.PIPE, text=True)
    return list(zip(*json.loads(done.stdout), strict=True))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.trials.paired_runs", description=__doc__)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    first = options.bundles[0]
    inputs = bundle.golden_cases(first, bundle.load(first))[0].inputs
    models = [load(str(path), threads=options.threads, trust="unsigned") for path in options.bundles]
    for model in models:
        model.run(list(inputs))
    print(json.dumps(block_medians(models, inputs, options.blocks, options.seconds)))


if __name__ == "__main__":
    main()
