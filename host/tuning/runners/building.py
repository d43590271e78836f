"""Jobs that build programs: functions of a module, which run here or on another host."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from host.errors import BuildError, ScheduleError
from host.execution import Engine, JobCrashed
from host.model import Candidate, DeviceProfile
from host.schedules.design import DesignSpace
from host.tuning.tasks import TuningTask

T = TypeVar("T")

if TYPE_CHECKING:
    import tvm

    from host.build import KernelObject


class ProgramBuilder:
    """Builds programs as jobs of an engine; called from several threads.

    Args:
        engine: where they run. A design space is sent to it once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._spaces: dict[str, DesignSpace] = {}

    def library(self, task: TuningTask, candidate: Candidate, profile: DeviceProfile) -> bytes:
        """A library with the kernel alone.

        Raises:
            ScheduleError: the candidate does not apply to the task.
            BuildError: it does not compile.
            HostLost: the engine is gone.
        """
        return self._built(kernel_library, task, candidate, profile)

    def kernel(self, task: TuningTask, candidate: Candidate, target: tvm.target.Target) -> KernelObject:
        """The object of the kernel.

        Raises:
            ScheduleError, BuildError, HostLost: see `library`.
        """
        return self._built(kernel_object, task, candidate, target)

    def _built(self, build: Callable[..., T], task: TuningTask, candidate: Candidate, target: object) -> T:
        try:
            return self._engine.submit(build, self._shared(task), candidate, target).result()
        except JobCrashed as error:
            raise BuildError(f"{task.key}: the compiler does not survive the program: {error}") from error

    def _shared(self, task: TuningTask) -> DesignSpace:
        if task.key not in self._spaces:
            self._spaces[task.key] = self._engine.share(task.space)
        return self._spaces[task.key]


def kernel_library(space: DesignSpace, candidate: Candidate, profile: DeviceProfile) -> bytes:
    """The library of one program; see `ProgramBuilder.library`."""
    from host.build import KernelCache, build_cuda_library, build_kernel_library, cuda_major, target_for

    functions = {space.task.name: _scheduled(space, candidate)}
    target = target_for(profile.board)
    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        library = Path(folder) / "kernel.so"
        if profile.hardware.gpu is not None:
            build_cuda_library(functions, library, target, KernelCache(), cuda_major(profile.software))
        else:
            build_kernel_library(functions, library, target, KernelCache())
        return library.read_bytes()


def kernel_object(space: DesignSpace, candidate: Candidate, target: tvm.target.Target) -> KernelObject:
    """The object of one program; see `ProgramBuilder.kernel`."""
    from host.build import KernelCache, compile_kernel

    return compile_kernel(_scheduled(space, candidate), space.task.name, target, KernelCache())


def _scheduled(space: DesignSpace, candidate: Candidate) -> tvm.tirx.PrimFunc:
    from host.schedules import scheduled_function

    try:
        return scheduled_function(space.apply(candidate))
    except (RuntimeError, TypeError, ValueError) as error:
        raise ScheduleError(f"{space.task.name}: {error}") from error
