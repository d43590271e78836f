"""Programs built on the host and timed on a device that may go away and come back."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from host.errors import DeviceError, MeasureError, ScheduleError, SessionLost
from host.model import Candidate, DeviceProfile, Measurement
from host.tuning.tasks import TuningTask

if TYPE_CHECKING:
    from host.measure.kernels import KernelRunner
    from host.transport import Device

_TIME_LIMIT_S = 60.0
# A program that the device went away from so often is at fault itself.
_LOSSES = 2


class DeviceBench:
    """Measures on a connected device and connects again when it goes away; a context manager.

    Args:
        device: connected; whoever connected it closes it.
        profile: of it.
        connect: connects to the same device again.
        folder: for libraries.
        note: told of losses and returns.
        waits_s: seconds before each attempt to connect again.

    Attributes:
        device: the one that is connected now, which the caller closes if it is another than was given.
    """

    def __init__(
        self,
        device: Device,
        profile: DeviceProfile,
        connect: Callable[[], Device],
        folder: Path,
        note: Callable[[str], None],
        waits_s: Sequence[float] = (0.0, 2.0, 10.0),
    ) -> None:
        self.device = device
        self._profile = profile
        self._connect = connect
        self._folder = folder
        self._note = note
        self._waits_s = tuple(waits_s)
        self._numbers = itertools.count()
        self._open = ExitStack()
        self._runner: KernelRunner | None = None

    def build(self, task: TuningTask, candidate: Candidate) -> Path:
        """See `Bench.build`."""
        from host.build import KernelCache, build_kernel_library, target_for
        from host.space import scheduled_function

        try:
            function = scheduled_function(task.space.apply(candidate))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ScheduleError(f"{task.name}: {error}") from error
        library = self._folder / f"candidate-{next(self._numbers)}.so"
        build_kernel_library({task.name: function}, library, target_for(self._profile.board), KernelCache())
        return library

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        """See `Bench.measure`; the library is removed afterwards."""
        arguments = [
            (tuple(int(size) for size in parameter.shape), str(parameter.dtype))
            for parameter in task.space.task.function.params
        ]
        # In the model a kernel's weights are not in the cache that a loop over it would find them in.
        flush = 2 * self._profile.hardware.level("L2").size_bytes
        try:
            for _ in range(_LOSSES):
                try:
                    runner = self._runner or self._start()
                    return runner.measure(
                        library, task.name, arguments, repeat=9, flush_bytes=flush, max_s=2.0
                    )
                except SessionLost:
                    raise
                except DeviceError as error:
                    self._return_to(error)
        finally:
            library.unlink(missing_ok=True)
        raise MeasureError(f"kernel {task.name}: the device went away {_LOSSES} times while it was measured")

    def _start(self) -> KernelRunner:
        from host.measure.kernels import KernelRunner

        session = self._open.enter_context(
            self.device.open_session("tvm", self._profile.threads, _TIME_LIMIT_S)
        )
        self._runner = self._open.enter_context(KernelRunner(session))
        return self._runner

    def _return_to(self, loss: DeviceError) -> None:
        """Connect to a device that went away.

        Raises:
            DeviceError: it does not come back.
        """
        self._note(f"{loss}; trying to reach it again")
        self._drop()
        reason: Exception = loss
        for wait_s in self._waits_s:
            time.sleep(wait_s)
            try:
                self.device = self._connect()
            except DeviceError as error:
                reason = error
                continue
            self._note(f"{self._profile.device} is back")
            return
        raise DeviceError(
            f"{self._profile.device} does not come back ({reason}); everything measured is kept: run the "
            "same command again when the device answers"
        ) from loss

    def _drop(self) -> None:
        """Let a broken connection go."""
        self._runner, broken = None, self._open
        self._open = ExitStack()
        # What it says on closing is of the same loss.
        try:
            broken.close()
            self.device.close()
        except (DeviceError, OSError, RuntimeError) as error:
            self._note(f"{self._profile.device}: closing what was lost: {error}")

    def __enter__(self) -> DeviceBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
