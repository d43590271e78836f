"""Programs of one task on one device: built, measured, and checked against each other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm

from host.build import KernelCache, build_kernel_library, compile_kernel, target_for
from host.errors import MeasureError, UserError
from host.measure.kernels import KernelRunner
from host.model import DeviceProfile, Measurement, Task
from targets import MachineDescription, board_for

if TYPE_CHECKING:
    from host.transport import Device

KERNEL = "kernel"
# Relative to the largest value, as bundles are verified.
TOLERANCE = 1e-3
# A program that runs longer is of no use to anybody: the executor is ended and replaced.
_TIME_LIMIT_S = 30.0


@dataclass(frozen=True)
class MeasurePlan:
    """How a program is measured.

    Attributes:
        samples: in one measurement; the shortest is used, since other work on the machine only adds time.
        sample_ms: smallest length of a sample in milliseconds.
        pass_s: a pass over one program stops early after this long.
        rounds: of the comparison side by side.
        seed: of the arguments and of the order within the rounds.
    """

    samples: int = 12
    sample_ms: float = 2.0
    pass_s: float = 1.0
    rounds: int = 12
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Built:
    """A program as a library; equal programs have the same key.

    Attributes:
        key: hash of the program.
        library: shared library, on the host.
        build_s: seconds of building.
    """

    key: str
    library: Path
    build_s: float


@dataclass(frozen=True, eq=False)
class Bench:
    """A device with a session for measuring programs; see `open_bench`."""

    profile: DeviceProfile
    target: tvm.target.Target
    runner: KernelRunner
    folder: Path
    cache: KernelCache
    plan: MeasurePlan

    def build(self, function: tvm.tirx.PrimFunc) -> Built:
        """Compile and link one program.

        Raises:
            BuildError: it does not compile.
        """
        begin = time.perf_counter()
        key = compile_kernel(function, KERNEL, self.target, self.cache).key
        path = self.folder / f"{key}.so"
        if not path.is_file():
            build_kernel_library({KERNEL: function}, path, self.target, self.cache)
        return Built(key, path, time.perf_counter() - begin)

    def measure(self, task: Task, built: Built, max_s: float | None = None) -> Measurement:
        """One measurement pass.

        Raises:
            MeasureError: it cannot be run.
            SessionLost: it crashed or hung.
        """
        return self.runner.measure(
            built.library,
            KERNEL,
            arguments_of(task),
            repeat=self.plan.samples,
            min_repeat_ms=self.plan.sample_ms,
            max_s=self.plan.pass_s if max_s is None else max_s,
            seed=self.plan.seed,
        )

    def time(self, task: Task, built: Built, max_s: float | None = None) -> float:
        """Seconds of one call: the shortest sample of one pass.

        Raises:
            MeasureError: it cannot be run.
            SessionLost: it crashed or hung.
        """
        return min(self.measure(task, built, max_s).times_s)

    def outputs(self, task: Task, built: Built) -> list[np.ndarray]:
        """The arguments after a run of the program; the inputs are the same for all programs of a task.

        Raises:
            MeasureError: it cannot be run.
            SessionLost: it crashed or hung.
        """
        generator = np.random.default_rng(self.plan.seed)
        return self.runner.run(built.library, KERNEL, [_array(*one, generator) for one in arguments_of(task)])

    def side_by_side(self, task: Task, programs: Mapping[str, Built]) -> dict[str, tuple[float, ...]]:
        """Seconds of every program in interleaved rounds, in random order; rounds correspond.

        Raises:
            MeasureError: a program cannot be run.
            SessionLost: one crashed or hung.
        """
        order = np.random.default_rng(self.plan.seed)
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(self.plan.rounds):
            for name in map(str, order.permutation(sorted(programs))):
                times[name].append(self.time(task, programs[name], max_s=2 * self.plan.pass_s))
        return {name: tuple(samples) for name, samples in times.items()}


@contextmanager
def open_bench(device: Device, profile: DeviceProfile, folder: Path, plan: MeasurePlan) -> Iterator[Bench]:
    """A session on the device for kernels.

    Args:
        device: connected.
        profile: of the device; `threads` is that of every program.
        folder: for libraries and compiled kernels. Kernels of earlier runs are not used, so that the seconds
            of building are complete.
        plan: of the measurements.

    Raises:
        DeviceError: the device was lost or is in use.
    """
    with (
        device.open_session("tvm", profile.threads, time_limit_s=_TIME_LIMIT_S) as session,
        KernelRunner(session) as runner,
    ):
        cache = KernelCache(folder / "kernels")
        yield Bench(profile, target_for(profile.board), runner, folder, cache, plan)


def restricted(profile: DeviceProfile, description: MachineDescription, part: str) -> DeviceProfile:
    """The profile of the same machine without some of its instructions, as a different board.

    Args:
        profile: of the whole machine.
        description: of the machine.
        part: the remaining instructions, "avx2" on x86-64; "" changes nothing.

    Raises:
        UserError: the board knows no such restriction, or it changes nothing.
    """
    if not part:
        return profile
    try:
        board = board_for(description, part)
    except ValueError as error:
        raise UserError(f"--restrict {part}: {error}") from error
    if board is None or board.tvm_target == profile.board.tvm_target:
        raise UserError(f"--restrict {part}: it leaves nothing of {profile.board.title} unused; try avx2")
    return replace(profile, board=board, hardware=board.hardware)


def arguments_of(task: Task) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and dtype of every argument of the task's function."""
    return tuple((tuple(int(d) for d in p.shape), str(p.dtype)) for p in task.function.params)


def difference(made: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Largest difference of corresponding arrays, each relative to its largest expected value.

    Infinite if a value is not finite.

    Raises:
        MeasureError: the arrays do not correspond.
    """
    if [one.shape for one in made] != [one.shape for one in expected]:
        raise MeasureError("two programs of one task have different arguments")
    worst = 0.0
    for one, other in zip(made, expected, strict=True):
        if not np.isfinite(one).all() or not np.isfinite(other).all():
            return float("inf")
        if one.size:
            gap = np.abs(one.astype(np.float64) - other.astype(np.float64)).max()
            worst = max(worst, float(gap) / max(float(np.abs(other.astype(np.float64)).max()), 1e-30))
    return worst


def _array(shape: tuple[int, ...], dtype: str, generator: np.random.Generator) -> np.ndarray:
    # Integers are indices as often as not, and only 0 is in range of every table.
    if not dtype.startswith("float"):
        return np.zeros(shape, dtype)
    return generator.standard_normal(shape, np.float32).astype(dtype)
