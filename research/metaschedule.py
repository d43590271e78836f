"""MetaSchedule's evolutionary search with this project's builder and devices; a search can be resumed.

It is the tuned baseline of the benchmarks: stock rules, stock mutators and stock cost model (XGBoost). Only
the compiler and the measurement of programs are this project's.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from host.build import build_kernel_library
from host.build.kernel import first_line
from host.errors import BuildError, EdgeError, MeasureError, SessionLost
from host.measure.kernels import KernelRunner
from host.model import Task

FUNCTION = "main"
# MetaSchedule writes this many seconds for a trial that did not build or run.
FAILED_S = 1e9
_INTRINSICS = "tvm.s_tir.tensor_intrin"
_INTRINSIC_MODULES = {"x86_64": "x86", "aarch64": "arm_cpu", "riscv64": "riscv_cpu"}


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search.

    Attributes:
        trials: programs to measure in all, including recorded ones.
        batch: programs measured between two trainings of the cost model.
        seed: of every random choice.
        cost_model: "xgb" or "random".
        workers: threads that compile.
        search_threads: threads that evolve programs.
        repeat, min_repeat_ms, max_s: of a measurement, see `KernelRunner.measure`.
    """

    trials: int
    batch: int = 64
    seed: int = 0
    cost_model: str = "xgb"
    workers: int = 2
    search_threads: int = 2
    repeat: int = 10
    min_repeat_ms: float = 2.0
    max_s: float = 1.0


@dataclass(frozen=True, eq=False)
class FoundProgram:
    """A recorded program.

    Attributes:
        function: the scheduled function.
        seconds: of one call, from the record.
        trace: of the schedule, with all decisions.
    """

    function: tvm.tirx.PrimFunc
    seconds: float
    trace: Any


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The records of a task after a search.

    Attributes:
        programs: the best ones, fastest first.
        trials: number of recorded programs, failed ones included.
        failed: number of those that did not build or run.
        measured_now: trials of this search; the others are of earlier ones.
        seconds: duration of all recorded searches.
    """

    programs: tuple[FoundProgram, ...]
    trials: int
    failed: int
    measured_now: int
    seconds: float


def register_intrinsics(architecture: str) -> None:
    """Register the tensor intrinsics of one architecture, in place of all of them (30 to 60 s).

    Has to come before the first `TuneContext`; does nothing if they are registered already.

    Args:
        architecture: "x86_64", "aarch64" or "riscv64".
    """
    if _INTRINSICS in sys.modules:
        return
    spec = importlib.util.find_spec(_INTRINSICS)
    assert spec is not None
    # The package is entered without running its __init__, which imports every architecture.
    sys.modules[_INTRINSICS] = importlib.util.module_from_spec(spec)
    # For each function, TVM looks up the module of every caller among all that are loaded: in a new thread,
    # there are few callers.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(importlib.import_module, f"{_INTRINSICS}.{_INTRINSIC_MODULES[architecture]}").result()


@derived_object
class DeviceBuilder(ms.builder.PyBuilder):  # type: ignore[misc]
    """Compiles candidates with this project's builder, in threads of this process.

    Args:
        folder: for libraries; each gets a folder of its own, since MetaSchedule removes that.
        workers: threads.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        super().__init__()
        self.folder = folder
        self.workers = workers
        self.count = 0

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        """One library for each input."""
        first, self.count = self.count, self.count + len(build_inputs)

        def build_one(index: int) -> Any:
            place = self.folder / f"candidate{first + index}"
            place.mkdir(parents=True)
            entry = build_inputs[index]
            try:
                build_kernel_library({FUNCTION: entry.mod[FUNCTION]}, place / "kernel.so", entry.target)
            except BuildError as error:
                return ms.builder.BuilderResult(None, str(error))
            return ms.builder.BuilderResult(str(place / "kernel.so"), None)

        with ThreadPoolExecutor(self.workers, thread_name_prefix="search-build") as pool:
            return list(pool.map(build_one, range(len(build_inputs))))


@derived_object
class DeviceRunner(ms.runner.PyRunner):  # type: ignore[misc]
    """Measures candidates one after the other in a session on a device.

    Args:
        runner: of an open session.
        options: how long to measure.
    """

    def __init__(self, runner: KernelRunner, options: SearchOptions) -> None:
        super().__init__()
        self.runner = runner
        self.options = options

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        """One finished future for each input."""
        return [_finished(self._measure(entry)) for entry in runner_inputs]

    def _measure(self, entry: Any) -> Any:
        arguments = [([int(d) for d in info.shape], str(info.dtype)) for info in entry.args_info]
        try:
            measurement = self.runner.measure(
                Path(str(entry.artifact_path)),
                FUNCTION,
                arguments,
                repeat=self.options.repeat,
                min_repeat_ms=self.options.min_repeat_ms,
                max_s=self.options.max_s,
                seed=self.options.seed,
            )
        except (MeasureError, SessionLost) as error:
            return ms.runner.RunnerResult(None, str(error))
        # Whoever else is on the machine can only add time, so the least of the samples is the program's.
        return ms.runner.RunnerResult([min(measurement.times_s)], None)


def _finished(result: Any) -> Any:
    return ms.runner.RunnerFuture(lambda: True, lambda: result)


def search(
    task: Task,
    target: tvm.target.Target,
    threads: int,
    runner: KernelRunner,
    records: Path,
    options: SearchOptions,
    space_generator: Any = "post-order-apply",
    keep: int = 3,
) -> SearchResult:
    """Search a task until `options.trials` programs of it are on record.

    Args:
        task: the unscheduled function.
        target: what to compile for.
        threads: that programs may use: the search's `num-cores`.
        runner: measures; its session has as many threads.
        records: folder of the records of this task, created if necessary. An interrupted search continues
            from them.
        options: of the search.
        space_generator: "post-order-apply" uses the stock rules of the target.
        keep: number of programs to return.

    Raises:
        MeasureError: MetaSchedule fails on this task.
        DeviceError: the device went away.
    """
    register_intrinsics(str(target.attrs["mtriple"]).split("-")[0])
    records.mkdir(parents=True, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(records))
    module = workload_module(task.function, task.flops)
    before = len(database)
    finished = records / "finished"
    if before < options.trials and _number(finished) < options.trials:
        # What a search leaves that was killed while it built.
        shutil.rmtree(records / "building", ignore_errors=True)
        single = tvm.target.Target({**_dictionary(target), "num-cores": threads})
        with _clocked(records / "seconds"), _failures_of(task):
            _run_search(module, single, runner, records, options, space_generator, database)
        # A small space is exhausted with fewer programs: the search would only measure them again.
        finished.write_text(f"{options.trials}\n")
    records_of_task = list(database.get_all_tuning_records())
    failed = sum(_seconds(record) >= FAILED_S for record in records_of_task)
    return SearchResult(
        programs=_best(module, records_of_task, keep),
        trials=len(records_of_task),
        failed=failed,
        measured_now=len(records_of_task) - before,
        seconds=_total_seconds(records / "seconds"),
    )


def workload_module(function: tvm.tirx.PrimFunc, flops: float) -> tvm.IRModule:
    """A function in the form that the search needs: named "main", alone in a module.

    The number of operations is an attribute, since MetaSchedule's own count fails on values that are bound by
    Let.

    The function is a deep copy. `with_attr` shares the body, and a schedule with the only reference to the
    function changes that body in place: the caller's function would grow with every program.
    """
    copy = tvm.ir.load_json(tvm.ir.save_json(function))
    attributes = {"global_symbol": FUNCTION, "estimated_flops": round(flops)}
    return tvm.IRModule({FUNCTION: copy.with_attr(attributes)})


@contextmanager
def _failures_of(task: Task) -> Iterator[None]:
    try:
        yield
    except EdgeError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise MeasureError(f"MetaSchedule fails on {task.name}: {first_line(error)}") from error


@contextmanager
def _clocked(path: Path) -> Iterator[None]:
    """Add the seconds of the block to those in a file, even if the block is interrupted."""
    begin = time.monotonic()
    try:
        yield
    finally:
        with path.open("a") as file:
            file.write(f"{time.monotonic() - begin:.3f}\n")


def _number(path: Path) -> int:
    return int(path.read_text()) if path.is_file() else 0


def _total_seconds(path: Path) -> float:
    return sum(float(line) for line in path.read_text().split()) if path.is_file() else 0.0


def _dictionary(target: tvm.target.Target) -> dict[str, Any]:
    exported = {str(name): value for name, value in target.export().items()}
    return {name: value for name, value in exported.items() if name not in ("tag", "keys")}


def _run_search(
    module: tvm.IRModule,
    target: tvm.target.Target,
    runner: KernelRunner,
    records: Path,
    options: SearchOptions,
    space_generator: Any,
    database: Any,
) -> None:
    logger = logging.getLogger("research.metaschedule.search")
    logger.setLevel(logging.WARNING)
    # The stock cost model draws from numpy's global generator until it has seen enough programs.
    np.random.seed(options.seed)
    with target:
        context = ms.TuneContext(
            module,
            target=target,
            space_generator=space_generator,
            search_strategy="evolutionary",
            task_name=FUNCTION,
            rand_state=options.seed + 1,
            num_threads=options.search_threads,
            logger=logger,
        )
        model = _cost_model(options)
        _learn_records(model, context, database)
        ms.task_scheduler.GradientBased(seed=options.seed + 1).tune(
            tasks=[context],
            task_weights=[1.0],
            max_trials_global=options.trials - len(database),
            max_trials_per_task=options.trials - len(database),
            num_trials_per_iter=min(options.batch, options.trials - len(database)),
            builder=DeviceBuilder(records / "building", options.workers),
            runner=DeviceRunner(runner, options),
            measure_callbacks=ms.measure_callback.MeasureCallback.create("default"),
            database=database,
            cost_model=model,
        )


def _cost_model(options: SearchOptions) -> Any:
    if options.cost_model == "random":
        return ms.cost_model.RandomModel(seed=options.seed)
    return xgboost_model(options.seed, options.workers)


def xgboost_model(seed: int, workers: int) -> Any:
    """MetaSchedule's stock cost model, untrained.

    Args:
        seed: of its training.
        workers: threads that take features and train.

    Raises:
        MeasureError: XGBoost is not installed.
    """
    if importlib.util.find_spec("xgboost") is None:
        raise MeasureError("MetaSchedule's cost model needs XGBoost; pip install 'edgetlm[bench]'")
    from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

    return ms.cost_model.XGBModel(config=XGBConfig(seed=seed), num_tuning_cores=workers, tree_method="auto")


def _learn_records(model: Any, context: Any, database: Any) -> None:
    """Train the cost model on the measurements before an interruption."""
    old = list(database.get_all_tuning_records())
    if not old:
        return
    results = []
    for record in old:
        seconds = [float(s) for s in record.run_secs]
        results.append(ms.runner.RunnerResult(seconds if _seconds(record) < FAILED_S else None, None))
    model.update(context, [record.as_measure_candidate() for record in old], results)


def _seconds(record: Any) -> float:
    times = [float(seconds) for seconds in record.run_secs or ()]
    return float(np.median(times)) if times else math.inf


def _best(module: tvm.IRModule, records: Sequence[Any], keep: int) -> tuple[FoundProgram, ...]:
    usable = sorted((_seconds(record), index) for index, record in enumerate(records))
    found: list[FoundProgram] = []
    for seconds, index in usable:
        if len(found) == keep or seconds >= FAILED_S:
            break
        schedule = s_tir.Schedule(module)
        records[index].trace.apply_to_schedule(schedule, remove_postproc=False)
        function = schedule.mod[FUNCTION]
        if not any(tvm_ffi.structural_equal(function, other.function) for other in found):
            found.append(FoundProgram(function, seconds, records[index].trace))
    return tuple(found)
