"""Programs timed on a board that a host of a cluster reaches, and built on all of its hosts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tvm

from host.errors import BuildError
from host.execution import JobCrashed
from host.measure.kernels import KernelRunner
from host.model import DeviceProfile
from host.schedules import DesignSpace
from host.tuning.runners.reach import Reach
from research.collection.collect import ROUNDS, timed_rounds
from research.evaluation.bench import arguments_of

if TYPE_CHECKING:
    from host.transport import Device

# One program hangs no longer than this.
_TIME_LIMIT_S = 60.0


class HostedTimer:
    """Times programs on a device of a cluster; a `research.collection.collect.Timer`.

    Args:
        reach: to the device, by an engine.
        device: that it connected.
        profile: of the device.
    """

    rounds = ROUNDS

    def __init__(self, reach: Reach, device: Device, profile: DeviceProfile) -> None:
        self._reach = reach
        self._device = device
        self._profile = profile

    def times(
        self, space: DesignSpace, functions: Mapping[str, tvm.tirx.PrimFunc], note: Callable[[str], None]
    ) -> Mapping[str, Sequence[float]]:
        """See `Timer`.

        Raises:
            HostLost: the host that reaches the device is gone; what was measured before is in the file.
        """
        engine = self._reach.engine
        jobs = {
            name: engine.submit(program_library, name, function, self._profile)
            for name, function in functions.items()
        }
        libraries = {}
        for name, job in jobs.items():
            try:
                libraries[name] = job.result()
            except (BuildError, JobCrashed) as error:
                note(f"{space.task.name}: {error}")
        work = partial(
            times_there, libraries=libraries, arguments=arguments_of(space.task), profile=self._profile
        )
        times, failures = self._reach.beside(self._device, work)
        for failure in failures:
            note(f"{space.task.name}: {failure}")
        return times


def program_library(name: str, function: tvm.tirx.PrimFunc, profile: DeviceProfile) -> bytes:
    """The library of one program.

    Raises:
        BuildError: it does not compile.
    """
    from host.build import KernelCache, build_kernel_library, target_for

    with tempfile.TemporaryDirectory(prefix="edgetlm-") as folder:
        library = Path(folder) / "program.so"
        build_kernel_library({name: function}, library, target_for(profile.board), KernelCache())
        return library.read_bytes()


def times_there(
    device: Device,
    libraries: Mapping[str, bytes],
    arguments: tuple[tuple[tuple[int, ...], str], ...],
    profile: DeviceProfile,
) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds of each program in each round, and a line of each that fails; on the host of the device.

    Args:
        device: connected here.
        libraries: each with one program, by its name.
        arguments: shape and type of each.
        profile: of the device.
    """
    failures: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="edgetlm-") as folder,
        device.open_session("tvm", profile.threads, time_limit_s=_TIME_LIMIT_S) as session,
        KernelRunner(session) as runner,
    ):
        paths = {}
        for name, content in libraries.items():
            paths[name] = Path(folder) / f"{name}.so"
            paths[name].write_bytes(content)
        return timed_rounds(runner, paths, arguments, profile, failures.append), failures
