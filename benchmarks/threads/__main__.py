"""How well threads share models: `python -m benchmarks.threads MODEL... --json FILE`.

Each model, a name of the zoo or a file, is compiled for one thread and for `--threads`. Both bundles run in
processes of their own, in turn, while the other one is stopped. The calling thread also computes all of each
parallel loop of the second bundle by itself, so that what the loops lose is known one by one.

- waiting: microseconds of a run by which the calls of loops take longer than their longest parts: starting
  the other parts, and waiting for them.
- uneven: by which the longest part of each loop takes longer than the mean part.
- moved: by which the mean part takes longer than its share of the loop that one thread computes: what one
  core has written and another one reads. Less than 0 where two cores have more cache than one.
- between: outside of parallel loops, in kernels that one thread computes and in the virtual machine.

With `--resume`, models that FILE has already from the same command and commit are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.e2e.__main__ import find_subject
from benchmarks.result_file import add_json_option, heading, models_so_far, write_result
from device_agent.serve.executor_process import thread_variables
from host.execution.cores import usable_cores
from host.statistics import Estimate, paired_ratio

SCHEMA = "edgetlm.threads/1"
_WARM_UP = 5


class Running:
    """A worker process, stopped but while it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.kernels: list[tuple[str, int]] = json.loads(self._line())
        process.send_signal(signal.SIGSTOP)

    def runs(self, count: int, way: str) -> dict[str, Any]:
        """The times of some runs, see `worker`, behind a few that are not counted."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        for runs in (_WARM_UP, count):
            self._process.stdin.write(f"{runs} {way}\n")
            self._process.stdin.flush()
            found: dict[str, Any] = json.loads(self._line())
        self._process.send_signal(signal.SIGSTOP)
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a process that runs a bundle ended; its error is above")
        return line


@contextmanager
def running(bundle: Path, threads: int) -> Iterator[Running]:
    """A worker of a bundle, which ends behind this."""
    command = [sys.executable, "-m", "benchmarks.threads.worker", str(bundle), str(threads)]
    # Workers are bound to cores, or free, as in a session with so many threads.
    environment = os.environ | thread_variables(threads)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def compile_for(path: Path, threads: int, output: Path) -> None:
    """A bundle of a model for this machine, without measuring."""
    import sdk
    from host.options import CompileOptions

    sdk.compile(path, CompileOptions(model=path, backend="tvm", threads=threads), output=output)


def measured(path: Path, threads: int, rounds: int, runs: int, folder: Path) -> dict[str, Any]:
    """The figures of one model.

    Args:
        path: of the model.
        threads: that share it.
        rounds: in which both bundles take turns.
        runs: of each way in a round.
        folder: for the bundles.
    """
    with ExitStack() as stack:
        workers = {}
        for count in (1, threads):
            compile_for(path, count, folder / str(count))
            workers[count] = stack.enter_context(running(folder / str(count), count))
        taken: dict[str, list[dict[str, Any]]] = {"one": [], "alone": [], "shared": []}
        for _ in range(rounds):
            taken["one"].append(workers[1].runs(runs, "shared"))
            taken["alone"].append(workers[threads].runs(runs, "alone"))
            taken["shared"].append(workers[threads].runs(runs, "shared"))
        return figures_of(taken, workers[threads].kernels, threads)


def figures_of(
    taken: dict[str, list[dict[str, Any]]], kernels: Sequence[tuple[str, int]], threads: int
) -> dict[str, Any]:
    """The figures of one model from the times of all rounds.

    Args:
        taken: by the way of running; what `worker` answered in each round.
        kernels: names in the order of their calls, with the parallel loops of each.
        threads: that shared them.
    """
    medians = {way: [statistics.median(one["run_s"]) for one in found] for way, found in taken.items()}
    speed = paired_ratio(medians["one"], medians["shared"])
    alone, loop = _loops(taken["alone"], "loop_s"), _loops(taken["shared"], "loop_s")
    longest, part = _loops(taken["shared"], "longest_s"), _loops(taken["shared"], "part_s")
    between = statistics.median(one["between_s"] for one in taken["shared"])
    return {
        "one_ms": statistics.median(medians["one"]) * 1e3,
        "alone_ms": statistics.median(medians["alone"]) * 1e3,
        "shared_ms": statistics.median(medians["shared"]) * 1e3,
        "speed": _bounded(speed),
        "least_ms": {way: min(min(one["run_s"]) for one in found) * 1e3 for way, found in taken.items()},
        "loops": len(loop),
        "waiting_us": sum(a - b for a, b in zip(loop, longest, strict=True)) * 1e6,
        "uneven_us": sum(a - b for a, b in zip(longest, part, strict=True)) * 1e6,
        "moved_us": sum(a - b / threads for a, b in zip(part, alone, strict=True)) * 1e6,
        "between_us": between * 1e6,
        "kernels": _kernels(kernels, alone, loop, part),
    }


def _loops(rounds: Sequence[dict[str, Any]], field: str) -> list[float]:
    """The median of each loop over the rounds."""
    return [statistics.median(values) for values in zip(*(one[field] for one in rounds), strict=True)]


def _kernels(
    kernels: Sequence[tuple[str, int]], alone: Sequence[float], loop: Sequence[float], part: Sequence[float]
) -> list[dict[str, Any]]:
    """Microseconds of the loops of each call: by one thread, by all, and of a part in the mean."""
    found, place = [], 0
    for name, count in kernels:
        if count:
            own = slice(place, place + count)
            figures = {"alone_us": alone, "shared_us": loop, "part_us": part}
            found.append({"name": name} | {key: sum(one[own]) * 1e6 for key, one in figures.items()})
        place += count
    return found


def _bounded(ratio: Estimate) -> dict[str, float | None]:
    return {"value": ratio.value, "low": ratio.low, "high": ratio.high}


def _line(name: str, figures: Mapping[str, Any]) -> str:
    lost = ", ".join(f"{one} {figures[f'{one}_us']:.0f}" for one in ("waiting", "uneven", "moved", "between"))
    times = f"{figures['one_ms']:8.3f} ms with one thread, {figures['shared_ms']:8.3f} with all"
    return f"{name:20} {times}: {figures['speed']['value']:.2f} times as fast; us: {lost}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.threads", description=__doc__)
    parser.add_argument("models", nargs="+", help="names of the zoo, or files")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=30, help="of each way in a round")
    parser.add_argument("--resume", action="store_true", help="keep the models that the result file has")
    add_json_option(parser)
    options = parser.parse_args()
    if options.threads < 2:
        parser.error("threads share nothing where there are fewer than two: give --threads 2 or more")
    about = heading("benchmarks.threads", SCHEMA)
    models: dict[str, Any] = models_so_far(options.json, about) if options.resume else {}
    for name in options.models:
        if name in models:
            continue
        with tempfile.TemporaryDirectory(prefix="edgetlm-threads-") as scratch:
            subject = find_subject(name, (), Path(scratch))
            one = measured(subject.path, options.threads, options.rounds, options.runs, Path(scratch))
        models[subject.name] = one
        print(_line(subject.name, one), flush=True)
        write_result(options.json, about | {"threads": options.threads, "models": models})


if __name__ == "__main__":
    main()
