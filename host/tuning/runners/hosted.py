"""Measuring on a board that another host reaches: the session with the board is in an actor there."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from host.errors import DeviceError
from host.execution import Actor, HostLost
from host.model import DeviceProfile, Measurement
from host.transport.hosted import HostedBoard
from host.transport.wire import DisconnectedError
from host.tuning.runners.connection import (
    Arguments,
    BoardAccess,
    DeviceConnection,
    ReconnectingDevice,
    ReferenceModel,
    arguments_of,
)
from host.tuning.tasks import TuningTask

if TYPE_CHECKING:
    import numpy as np

    from host.measure.variants import VariantMeasurement
    from host.transport import Device

T = TypeVar("T")


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

    def measure_kernel(self, number: int, kernel: str, arguments: Arguments, library: bytes) -> Measurement:
        """See `BoardConnection.measure`."""
        with self._measuring:
            path = self._folder / "kernel.so"
            path.write_bytes(library)
            return self._ready(number).measure_kernel(kernel, arguments, path)

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


class HostedConnection(ReconnectingDevice):
    """A `BoardConnection` to a board of another host; see `ReconnectingDevice`.

    Args:
        access: of the board.
        actor: of its `MeasuringBoard`.
    """

    def __init__(self, access: BoardAccess, actor: Actor) -> None:
        super().__init__(access)
        self._actor = actor
        self._used: Device | None = None
        self._kept_models: set[Path] = set()

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
        found: Measurement = self._call(
            "measure_kernel", number, task.name, arguments_of(task), library.read_bytes()
        )
        return found

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
        return contextlib.ExitStack()

    def _number(self) -> int:
        self.connect()
        assert self.device is not None
        number: int = self.device.agent.number  # type: ignore[attr-defined]
        return number

    def _call(self, method: str, *arguments: object) -> Any:
        try:
            return self._actor.call(method, *arguments)
        except (HostLost, DisconnectedError) as error:
            # An actor that was restarted does not have this connection.
            raise HostLost(f"{self.name}: {error}") from error
