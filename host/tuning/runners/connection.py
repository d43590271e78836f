"""The connection to one board, for timing programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from host.errors import DeviceError, SessionLost
from host.model import Candidate, DeviceProfile, Measurement
from host.tuning.tasks import TuningTask

if TYPE_CHECKING:
    import numpy as np

    from host.measure.kernels import KernelRunner
    from host.measure.variants import VariantMeasurement, VariantRunner
    from host.transport import Device

# The agent ends a program after so long; twice that, and it is the board that hangs.
TIME_LIMIT_S = 60.0
_REPEATS, _LONGEST_S = 9, 2.0
# All variants of a job in one call, of which a slow model's take seconds each: as much as a board may take to
# answer (`host.tuning.runners.reconnect`), nearly.
_VARIANTS_LIMIT_S = 150.0
# Runs of each variant of a model. The fastest fifth of them counts, so this many make a median of twelve.
VARIANT_RUNS, LONGEST_RUNS_S = 60, 10.0


# Shape and type of each argument of a kernel.
Arguments: TypeAlias = "Sequence[tuple[tuple[int, ...], str]]"


def arguments_of(task: TuningTask) -> Arguments:
    """The arguments of a task's kernel."""
    return [
        (tuple(int(size) for size in parameter.shape), str(parameter.dtype))
        for parameter in task.space.task.function.params
    ]


def work_in(task: TuningTask, program: Candidate) -> dict[str, float]:
    """What a program of a task does in one call, as a simulated board is told."""
    from host.schedules.work import work_of

    values = {name: value for name, value in program.decisions if isinstance(value, int)}
    return work_of(task.space, values).data()


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """The model that kernels are measured in.

    Attributes:
        bundle: of the model with its reference programs.
        inputs: of the model, in its order.
    """

    bundle: Path
    inputs: Sequence[np.ndarray]


class BoardConnection(Protocol):
    """The interface of a worker to its board; one thread at a time calls it.

    Only `abort` and `withdraw` are called from other threads too.

    Attributes:
        name: the user's name for it.
    """

    name: str

    def connect(self) -> None:
        """Connect if there is no connection.

        Raises:
            DeviceError: the board does not answer.
        """

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        """Time a built program.

        Raises:
            MeasureError: it cannot be measured.
            SessionLost: it crashed, hung or used too much memory.
            DeviceError: the board went away.
        """

    def measure_energy(self, task: TuningTask, library: Path, program: Candidate) -> Measurement:
        """Time a built program, and measure the energy of a call; see `measure`."""

    def measure_variants(self, model: ReferenceModel, libraries: Sequence[Path]) -> VariantMeasurement:
        """Time the kernels of variants of a model inside of the model.

        Args:
            model: is loaded first.
            libraries: of the variants.

        Raises:
            MeasureError: a variant cannot be measured.
            SessionLost: one crashed, hung or used too much memory.
            EngineError: the model cannot be loaded.
            DeviceError: the board went away.
        """

    def follow(self, task: TuningTask, library: Path) -> None:
        """Name the built program that is timed after the next one; a board elsewhere may get it before."""

    def withdraw(self) -> None:
        """Forget what `follow` named: another program comes next, or none. Called from any thread."""

    def drop(self) -> str:
        """Drop a broken connection; returns the error of closing it, "" if there is none."""

    def abort(self) -> None:
        """Make the current call fail soon; called from another thread."""

    def close(self) -> None:
        """Close the session, and the connection unless the caller keeps it."""


@dataclass(frozen=True, eq=False)
class BoardAccess:
    """How a board is connected for measurements.

    Attributes:
        name: the user's name for it.
        profile: that programs are made for.
        connect: connects to it.
        device: connected already; None connects when needed.
        keep: leave the connection open at the end, for the caller, who closes it.
    """

    name: str
    profile: DeviceProfile
    connect: Callable[[], Device]
    device: Device | None = None
    keep: bool = False


class ReconnectingDevice:
    """A device that is connected when it is needed, and again where it was lost.

    Args:
        access: of the board.

    Attributes:
        device: the present connection; None where there is none.
    """

    def __init__(self, access: BoardAccess) -> None:
        self.name = access.name
        self.device = access.device
        self._profile = access.profile
        self._connect = access.connect
        self._keep = access.keep
        self._lost = False

    def connect(self) -> None:
        """See `BoardConnection.connect`."""
        if self.device is None or self._lost:
            cut, self.device = self.device, self._connect()
            self._lost = False
            if cut is not None:
                self.device.replace(cut)

    def follow(self, task: TuningTask, library: Path) -> None:
        """See `BoardConnection.follow`: this process itself begins each program."""

    def withdraw(self) -> None:
        """See `BoardConnection.withdraw`."""

    def drop(self) -> str:
        """See `BoardConnection.drop`."""
        broken = self._all_open()
        self._lost = True
        # What it says on closing is of the same loss.
        try:
            broken.close()
            if self.device is not None:
                self.device.close()
        except (DeviceError, OSError, RuntimeError) as error:
            return f"{self.name}: closing what was lost: {error}"
        return ""

    def abort(self) -> None:
        """See `BoardConnection.abort`: without its agent, every command under way fails."""
        if self.device is not None:
            self.device.agent.stop()

    def close(self) -> None:
        """See `BoardConnection.close`."""
        self._all_open().close()
        if self.device is not None and not self._keep:
            self.device.close()

    def _all_open(self) -> ExitStack:
        """What is open on the board; it begins anew when it is needed again."""
        return ExitStack()


class DeviceConnection(ReconnectingDevice):
    """A device reached by a transport; see `ReconnectingDevice`."""

    def __init__(self, access: BoardAccess) -> None:
        super().__init__(access)
        self._open = ExitStack()
        self._runner: KernelRunner | None = None
        self._variants: VariantRunner | None = None
        self._variants_open = ExitStack()

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        """See `BoardConnection.measure`."""
        return self.measure_kernel(task.name, arguments_of(task), library)

    def measure_energy(self, task: TuningTask, library: Path, program: Candidate) -> Measurement:
        """See `BoardConnection.measure_energy`."""
        return self.measure_kernel(task.name, arguments_of(task), library, work_in(task, program))

    def measure_kernel(
        self, kernel: str, arguments: Arguments, library: Path, work: Mapping[str, float] | None = None
    ) -> Measurement:
        """The same of a kernel by its name.

        Args:
            kernel: its name.
            arguments: shape and type of each.
            library: of the program.
            work: see `work_in`; None measures no energy.
        """
        # In the model a kernel's weights are not in the cache that a loop over it would find them in.
        flush = 2 * self._profile.hardware.level("L2").size_bytes
        runner = self._runner or self._start()
        if self._profile.hardware.gpu is not None:
            # One launch is too short for the GPU's clock; its caches stay as the calls before left them.
            return runner.measure(
                library, kernel, arguments, repeat=_REPEATS, max_s=_LONGEST_S, device="cuda", work=work
            )
        return runner.measure(
            library, kernel, arguments, repeat=_REPEATS, flush_bytes=flush, max_s=_LONGEST_S, work=work
        )

    def _start(self) -> KernelRunner:
        from host.measure.kernels import KernelRunner

        self.connect()
        assert self.device is not None
        session = self._open.enter_context(
            self.device.open_session("tvm", self._profile.threads, TIME_LIMIT_S)
        )
        self._runner = self._open.enter_context(KernelRunner(session))
        return self._runner

    def measure_variants(self, model: ReferenceModel, libraries: Sequence[Path]) -> VariantMeasurement:
        """See `BoardConnection.measure_variants`."""
        runner = self._variants or self._start_variants(model)
        try:
            return runner.measure(libraries, runs=VARIANT_RUNS, max_s=LONGEST_RUNS_S)
        except SessionLost:
            # The next executor of the session has no model.
            self._variants = None
            self._variants_open.close()
            raise

    def _start_variants(self, model: ReferenceModel) -> VariantRunner:
        from host.measure.variants import VariantRunner

        self.connect()
        assert self.device is not None
        with ExitStack() as opened:
            session = opened.enter_context(
                self.device.open_session("tvm", self._profile.threads, _VARIANTS_LIMIT_S)
            )
            session.load(model.bundle, trust="unsigned")
            session.set_inputs(model.inputs)
            self._variants = opened.enter_context(VariantRunner(session))
            self._variants_open = opened.pop_all()
        return self._variants

    def _all_open(self) -> ExitStack:
        """See `ReconnectingDevice`."""
        self._runner = self._variants = None
        every = ExitStack()
        every.push(self._variants_open)
        every.push(self._open)
        self._open, self._variants_open = ExitStack(), ExitStack()
        return every
