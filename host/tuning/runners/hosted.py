"""Measuring on a board that another host reaches: the session with the board is in an actor there."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from host.errors import DeviceError
from host.execution import Actor, HostLost, Pending
from host.model import Candidate, DeviceProfile, Measurement
from host.transport.hosted import HostedBoard
from host.transport.wire import DisconnectedError
from host.tuning.runners.connection import (
    Arguments,
    BoardAccess,
    DeviceConnection,
    ReconnectingDevice,
    ReferenceModel,
    arguments_of,
    work_in,
)
from host.tuning.tasks import TuningTask

if TYPE_CHECKING:
    import numpy as np

    from host.measure.variants import VariantMeasurement
    from host.transport import Device

T = TypeVar("T")

# A program that is still measured after so long is one that the board has begun: the next one is behind it.
_BEGUN_S = 0.05


class MeasuringBoard(HostedBoard):
    """A board with sessions that measure programs; one measures at a time.

    Args:
        name: as its host knows it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._connection: DeviceConnection | None = None
        self._measuring = threading.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="edgetlm-"))
        self._models: dict[str, ReferenceModel] = {}

    def discard(self) -> None:
        """Remove what was kept here; see `host.execution.Actor.end`."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def use(self, number: int, profile: DeviceProfile) -> None:
        """Measure for this profile from now on."""
        self._connection = DeviceConnection(
            BoardAccess(self.name, profile, _not_here, self._of(number), keep=True)
        )

    def keep_model(self, key: str, files: Mapping[str, bytes], inputs: Sequence[np.ndarray]) -> None:
        """Keep the model that kernels are measured in, under a name."""
        folder = self._folder / key
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        self._models[key] = ReferenceModel(folder, inputs)

    def measure_kernel(
        self,
        number: int,
        kernel: str,
        arguments: Arguments,
        library: bytes,
        work: Mapping[str, float] | None = None,
    ) -> Measurement:
        """See `BoardConnection.measure`."""
        with self._measuring:
            path = self._folder / "kernel.so"
            path.write_bytes(library)
            return self._ready(number).measure_kernel(kernel, arguments, path, work)

    def measure_variants(self, number: int, key: str, libraries: Sequence[bytes]) -> VariantMeasurement:
        """See `BoardConnection.measure_variants`."""
        with self._measuring:
            connection = self._ready(number)
            paths = []
            for index, content in enumerate(libraries):
                paths.append(path := self._folder / f"variant-{index}.so")
                path.write_bytes(content)
            return connection.measure_variants(self._models[key], paths)

    def beside(self, number: int, work: Callable[[Device], T]) -> T:
        """The result of work with the connected board, on this host."""
        with self._measuring:
            return work(self._of(number))

    def _ready(self, number: int) -> DeviceConnection:
        if self._connection is None or self._of(number) is not self._connection.device:
            raise DeviceError(f"{self.name}: its host has connected anew")
        return self._connection

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Of a connection that is lost, the error is known; else nothing comes.
            with contextlib.suppress(DeviceError, OSError):
                connection.close()
        super()._release()


def on_its_host(actor: Actor, device: Device, work: Callable[[Device], T]) -> T:
    """The result of work with a device, done by the host that has the connection.

    Args:
        actor: of its `MeasuringBoard`.
        device: that `connect_hosted` connected.
        work: a function of a module.

    Raises:
        HostLost: that host, or its connection, is gone.
    """
    number: int = device.agent.number  # type: ignore[attr-defined]
    try:
        found: T = actor.call("beside", number, work)
    except (HostLost, DisconnectedError) as error:
        raise HostLost(f"{device.name}: {error}") from error
    return found


def _not_here() -> Device:
    raise DeviceError("it is the command that connects again")


def _call_of(number: int, task: TuningTask, library: Path) -> tuple[int, str, Arguments, bytes]:
    """The arguments of `MeasuringBoard.measure_kernel`."""
    return number, task.name, arguments_of(task), library.read_bytes()


@dataclass(frozen=True, eq=False)
class _Sent:
    """A program that waits at its host for the board.

    Attributes:
        library: of the program.
        number: of the connection.
        answer: to the call.
    """

    library: Path
    number: int
    answer: Pending[Measurement]


class HostedConnection(ReconnectingDevice):
    """A `BoardConnection` to a board of another host; see `ReconnectingDevice`.

    The program that follows is sent while the board measures, so that the board begins it without waiting
    until an answer has come here and the next call has gone there.

    Args:
        access: of the board.
        actor: of its `MeasuringBoard`.
    """

    def __init__(self, access: BoardAccess, actor: Actor) -> None:
        super().__init__(access)
        self._actor = actor
        self._used: Device | None = None
        self._kept_models: set[Path] = set()
        self._following: tuple[TuningTask, Path] | None = None
        self._sent: _Sent | None = None

    def connect(self) -> None:
        """See `BoardConnection.connect`."""
        super().connect()
        assert self.device is not None
        if self._used is not self.device:
            self._call("use", self.device.agent.number, self._profile)  # type: ignore[attr-defined]
            self._used = self.device
            self._kept_models.clear()

    def measure(self, task: TuningTask, library: Path) -> Measurement:
        """See `BoardConnection.measure`."""
        number = self._number()
        sent, self._sent = self._sent, None
        following, self._following = self._following, None
        if sent is None or sent.library != library or sent.number != number:
            if following is None:
                found: Measurement = self._call("measure_kernel", *_call_of(number, task, library))
                return found
            sent = self._begun(number, task, library)
        if following is None:
            return self._answer(sent)
        try:
            return self._answer(sent, _BEGUN_S)
        except TimeoutError:
            self._sent = self._begun(number, *following)
        return self._answer(sent)

    def measure_energy(self, task: TuningTask, library: Path, program: Candidate) -> Measurement:
        """See `BoardConnection.measure_energy`; nothing is sent ahead of it."""
        number = self._number()
        self.withdraw()
        work = work_in(task, program)
        found: Measurement = self._call("measure_kernel", *_call_of(number, task, library), work)
        return found

    def follow(self, task: TuningTask, library: Path) -> None:
        """See `BoardConnection.follow`."""
        self._following = task, library

    def withdraw(self) -> None:
        """See `BoardConnection.withdraw`; what the board begins nevertheless has no answer."""
        self._following = self._sent = None

    def close(self) -> None:
        """See `BoardConnection.close`."""
        if self._sent is not None:
            self.withdraw()
            self.abort()
        super().close()

    def _begun(self, number: int, task: TuningTask, library: Path) -> _Sent:
        arguments = _call_of(number, task, library)
        with self._losing():
            return _Sent(library, number, self._actor.begin("measure_kernel", *arguments))

    def _answer(self, sent: _Sent, timeout: float | None = None) -> Measurement:
        with self._losing():
            return sent.answer.result(timeout)

    def measure_variants(self, model: ReferenceModel, libraries: Sequence[Path]) -> VariantMeasurement:
        """See `BoardConnection.measure_variants`."""
        number = self._number()
        key = model.bundle.name
        if model.bundle not in self._kept_models:
            files = {file.name: file.read_bytes() for file in model.bundle.iterdir() if file.is_file()}
            self._call("keep_model", key, files, model.inputs)
            self._kept_models.add(model.bundle)
        contents = [library.read_bytes() for library in libraries]
        found: VariantMeasurement = self._call("measure_variants", number, key, contents)
        return found

    def _all_open(self) -> contextlib.ExitStack:
        """See `ReconnectingDevice`: the board's host begins anew."""
        self._used = None
        self.withdraw()
        return contextlib.ExitStack()

    def _number(self) -> int:
        self.connect()
        assert self.device is not None
        number: int = self.device.agent.number  # type: ignore[attr-defined]
        return number

    def _call(self, method: str, *arguments: object) -> Any:
        with self._losing():
            return self._actor.call(method, *arguments)

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        """What is done with the actor; raises HostLost where it, or its connection, is gone."""
        try:
            yield
        except (HostLost, DisconnectedError) as error:
            # An actor that was restarted does not have this connection.
            raise HostLost(f"{self.name}: {error}") from error
