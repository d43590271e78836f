"""What all methods share: the device, the builder, and the measuring of single programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm

from benchmarks.operators.subject import Subject
from host.build import KernelCache, build_kernel_library, compile_kernel, target_for
from host.compile.device_profile import profile_of
from host.errors import BuildError, MeasureError, SessionLost
from host.execution.cores import usable_cores
from host.measure.kernels import KernelRunner
from host.model import DeviceProfile
from host.transport import connect
from host.transport.session import Session

KERNEL = "kernel"
_TIME_LIMIT_S = 60.0


@dataclass(frozen=True)
class Options:
    """How the benchmark is run.

    Attributes:
        threads: of every contender.
        trials: of every search.
        seed: of every random choice.
        rounds: interleaved rounds of the finalists.
        samples: in a measurement; the least counts.
        sample_ms: length of a sample, at least. Neighbours on the machine can only add time, and of many
            short samples some are undisturbed.
        random: programs that the random baseline draws.
        records: folder that keeps the records of the searches.
        cost_model: of the searches, "xgb" or "random".
    """

    threads: int = 1
    trials: int = 256
    seed: int = 0
    rounds: int = 12
    samples: int = 12
    sample_ms: float = 2.0
    random: int = 64
    records: Path = Path("edgetlm-out/operator-records")
    cost_model: str = "xgb"


@dataclass(frozen=True, eq=False)
class Program:
    """A scheduled function with what is known of its making.

    Attributes:
        function: scheduled.
        decisions: what was decided, as it goes into the results.
        estimate_s: estimate of whoever proposed it, or None.
        direct: whether it schedules the direct form of the operator.
    """

    function: tvm.tirx.PrimFunc
    decisions: Any
    estimate_s: float | None = None
    direct: bool = False


@dataclass(frozen=True, eq=False)
class Built:
    """A program as a library; equal programs have the same key."""

    program: Program
    key: str
    library: Path


@dataclass(frozen=True, eq=False)
class Bench:
    """The open device and everything that stays the same over all operators."""

    options: Options
    profile: DeviceProfile
    target: tvm.target.Target
    session: Session
    runner: KernelRunner
    library: Session
    folder: Path
    cache: KernelCache = field(default_factory=KernelCache)

    @property
    def workers(self) -> int:
        """Threads that compile; nothing is measured meanwhile."""
        return usable_cores()

    def build(self, program: Program) -> Built:
        """Compile and link one program.

        Raises:
            BuildError: it does not compile.
        """
        key = compile_kernel(program.function, KERNEL, self.target, self.cache).key
        path = self.folder / f"{key}.so"
        if not path.is_file():
            build_kernel_library({KERNEL: program.function}, path, self.target, self.cache)
        return Built(program, key, path)

    def build_all(self, programs: Sequence[Program]) -> list[Built]:
        """Compile programs in threads; those that do not compile are left out, equal ones come once."""

        def attempt(program: Program) -> Built | None:
            try:
                return self.build(program)
            except BuildError:
                return None

        with ThreadPoolExecutor(self.workers) as pool:
            built = [one for one in pool.map(attempt, programs) if one is not None]
        return list({one.key: one for one in reversed(built)}.values())[::-1]

    def time(self, subject: Subject, built: Built, max_s: float = 2.0) -> float:
        """Seconds of one call: the least of the samples.

        Raises:
            MeasureError: it cannot be run.
            SessionLost: it crashed or hung.
        """
        measurement = self.runner.measure(
            built.library,
            KERNEL,
            subject.form(built.program.direct).arguments,
            repeat=self.options.samples,
            min_repeat_ms=self.options.sample_ms,
            max_s=max_s,
            seed=self.options.seed,
        )
        return min(measurement.times_s)

    def screen(
        self, subject: Subject, programs: Sequence[Program], keep: int = 3
    ) -> list[tuple[Built, float]]:
        """Measure programs, fastest first; the first `keep` are measured again, interleaved, before that.

        A single measurement of many favours those that were lucky.
        """
        times: dict[str, float] = {}
        built = self.build_all(programs)
        for one in built:
            try:
                times[one.key] = self.time(subject, one, max_s=1.0)
            except (MeasureError, SessionLost):
                continue
        ranked = sorted((one for one in built if one.key in times), key=lambda one: times[one.key])
        again: dict[str, list[float]] = {one.key: [] for one in ranked[:keep]}
        for _ in range(3):
            for one in ranked[:keep]:
                again[one.key].append(self.time(subject, one))
        times.update({key: min(samples) for key, samples in again.items()})
        finalists = sorted(ranked[:keep], key=lambda one: times[one.key])
        return [(one, times[one.key]) for one in (*finalists, *ranked[keep:])]


@contextmanager
def open_bench(options: Options, folder: Path) -> Iterator[Bench]:
    """Start the local device, with one process for kernels and one for the library."""
    with connect("local") as device:
        profile = profile_of(device, options.threads)
        with (
            device.open_session("tvm", options.threads, time_limit_s=_TIME_LIMIT_S) as session,
            device.open_session("onnxruntime", options.threads) as library,
            KernelRunner(session) as runner,
        ):
            library.pause()
            yield Bench(options, profile, target_for(profile.board), session, runner, library, folder)


@dataclass
class Stopwatch:
    """Wall and processor seconds of a `with` block."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.wall_s = time.perf_counter() - self._wall
        self.cpu_s = time.process_time() - self._cpu
