"""Runs the model of a bundle and times its parallel loops; a process of `benchmarks.threads`.

    python -m benchmarks.threads.worker BUNDLE THREADS

Writes a line of JSON with the kernels that one run calls, then answers each line `RUNS WAY` of its input with
the times of so many runs. WAY is `shared`, or `alone`: the calling thread computes all of each loop.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.execute.engines.arrays import from_array
from device_agent.execute.engines.tvm_engine import TvmEngine
from device_agent.execute.kernel_times import BUILTIN
from device_agent.store.opened_bundle import open_bundle
from host import bundle
from host.emulation.kernel_run import compiled_hooks

_HOOKS = Path(__file__).with_name("launches.c")
# As there.
_MOST_PARTS, _MOST_LOOPS = 32, 4096
# The variable by which a library finds the runtime's function; libraries without parallel loops have none.
_VARIABLE = "__TVMBackendParallelLaunch"


class Worker:
    """A loaded bundle whose parallel loops are timed.

    Args:
        path: of the bundle.
        threads: of the runtime's pool.
    """

    def __init__(self, path: Path, threads: int) -> None:
        opened = open_bundle(str(path.resolve()), "unsigned")
        self._engine = TvmEngine()
        self._engine.load_bundle(opened, threads)
        inputs = bundle.golden_cases(path, bundle.load(path))[0].inputs
        self._engine.bind([from_array(one) for one in inputs])
        self._hooks = compiled_hooks(_HOOKS.read_text())
        self._loops = ctypes.c_int64.in_dll(self._hooks, "loops")
        self._alone = ctypes.c_int32.in_dll(self._hooks, "alone")
        # Of each loop its begin and its end, the number of its parts, their begins, and their ends.
        width = 3 + 2 * _MOST_PARTS
        table = (ctypes.c_int64 * (_MOST_LOOPS * width)).in_dll(self._hooks, "table")
        self._table = np.ctypeslib.as_array(table).reshape(_MOST_LOOPS, width)
        self._watch(path.resolve() / opened.bundle.manifest.model)

    def _watch(self, library: Path) -> None:
        # The same library again: the loader knows it by its file.
        try:
            variable = ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), _VARIABLE)
        except ValueError:
            return
        ctypes.c_void_p.in_dll(self._hooks, "start_loop").value = variable.value
        variable.value = ctypes.cast(self._hooks.timed_launch, ctypes.c_void_p).value

    def kernels(self) -> list[tuple[str, int]]:
        """Names of the kernels in the order of their calls, and the parallel loops of each call."""
        found: list[tuple[str, int]] = []
        begun = 0

        def note(_function: Any, name: str, before: bool, *_: Any) -> None:
            nonlocal begun
            if before:
                begun = self._loops.value
            elif not name.startswith(BUILTIN):
                found.append((name, self._loops.value - begun))

        invoke = self._engine.machine.instrumented(note)
        invoke()
        found.clear()
        self._loops.value = 0
        invoke()
        return found

    def runs(self, count: int, way: str) -> dict[str, Any]:
        """Times of some runs.

        Args:
            count: of runs.
            way: "shared" or "alone".

        Returns:
            `run_s`, seconds of each run, and the medians of each loop in seconds: `loop_s`, of the call;
            `longest_s`, of the part that takes longest; `part_s`, of the parts in the mean. `between_s` is
            the median of what is outside of loops.
        """
        self._alone.value = way == "alone"
        run_s, noted = [], []
        for _ in range(count):
            self._loops.value = 0
            begin = time.perf_counter()
            self._engine.invoke()
            run_s.append(time.perf_counter() - begin)
            noted.append(self._table[: self._loops.value].copy())
        if self._loops.value > _MOST_LOOPS:
            raise SystemExit(f"a run starts {self._loops.value} parallel loops; {_MOST_LOOPS} have room here")
        loops = np.stack(noted) / 1e9
        took = loops[:, :, 1] - loops[:, :, 0]
        parts = np.round(loops[:, :, 2] * 1e9).astype(int)
        used = np.arange(_MOST_PARTS) < parts[:, :, None]
        each = np.where(used, loops[:, :, 3 + _MOST_PARTS :] - loops[:, :, 3 : 3 + _MOST_PARTS], 0.0)
        return {
            "run_s": run_s,
            "loop_s": np.median(took, axis=0).tolist(),
            "longest_s": np.median(each.max(axis=2), axis=0).tolist(),
            "part_s": np.median(each.sum(axis=2) / np.maximum(parts, 1), axis=0).tolist(),
            "between_s": float(np.median(np.array(run_s) - took.sum(axis=1))),
        }


def main() -> None:
    """Answer lines until the input ends."""
    threads = int(sys.argv[2])
    if threads > _MOST_PARTS:
        raise SystemExit(f"loops of {threads} parts: {_MOST_PARTS} have room here; give fewer --threads")
    worker = Worker(Path(sys.argv[1]), threads)
    print(json.dumps(worker.kernels()), flush=True)
    for line in sys.stdin:
        count, way = line.split()
        print(json.dumps(worker.runs(int(count), way)), flush=True)


if __name__ == "__main__":
    main()
