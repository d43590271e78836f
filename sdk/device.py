"""A connected device for applications on the host: bundles run there as functions of arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.closing import Closing
from host.errors import DeviceError, ModelFileError
from sdk.model import LoadedBundle

if TYPE_CHECKING:
    import numpy as np

    from host.transport import Device as Transport
    from host.transport import Session
    from sdk.model import Inputs
    from targets import MachineDescription

# Each holds its weights in the device's memory.
_KEPT = 2

# Path, size and time of change of each file of a bundle: it is loaded again where they differ.
_Stamp = tuple[tuple[str, int, int], ...]


class Device(Closing):
    """A connected device, which `sdk.connect` returns; a context manager.

    Args:
        transport: the connection.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._loaded: OrderedDict[_Stamp, LoadedBundle] = OrderedDict()

    @property
    def name(self) -> str:
        """The name of the device in the user's list."""
        return self._transport.name

    def run(self, bundle: str | Path, inputs: Inputs) -> dict[str, np.ndarray]:
        """Run a bundle once.

        The first call sends the files that the device does not have and loads the bundle; later calls use the
        open session. The sessions of the two most recently used bundles stay open. A bundle that changed on
        disk is loaded again.

        Args:
            bundle: directory or zip, on the host; `sdk.load` takes names of installed models as well.
            inputs: arrays by input name, or a list in the model's order, or the array of the only input.

        Returns:
            Outputs by name.

        Raises:
            ModelFileError: there is no bundle.
            BundleError: it is damaged.
            EngineError: the device cannot run it.
            ShapeError: an input is missing, unknown, or does not fit.
            DeviceBusy: another host has the device.
            DeviceError: the device or its session went away; the next call opens another.
        """
        stamp = _stamp(Path(bundle))
        model = self._loaded.get(stamp)
        if model is None:
            while len(self._loaded) >= _KEPT:
                self._loaded.popitem(last=False)[1].close()
            model = LoadedBundle(Path(bundle), self._transport)
            self._loaded[stamp] = model
        self._loaded.move_to_end(stamp)
        try:
            return model.run(inputs)
        except DeviceError:
            # A new executor has nothing loaded.
            del self._loaded[stamp]
            model.close()
            raise

    def describe(self) -> MachineDescription:
        """The description of the machine: processor, cores, features, memory, software.

        Raises:
            DeviceError: it went away.
        """
        return self._transport.describe()

    def state(self) -> dict[str, Any]:
        """Clocks, load, temperatures and throttling at this moment."""
        return self._transport.state()

    def sensor(self) -> dict[str, Any]:
        """The power sensor: `source`, `rails`, `boundary`, and `unavailable` with the reason or None."""
        return self._transport.sensor()

    def open_session(self, engine: str, threads: int = 1, **limits: Any) -> Session:
        """Open a session; see `host.transport.Device.open_session`.

        Raises:
            EngineError: the engine is not installed there.
            DeviceError: the device went away or is in use.
        """
        return self._transport.open_session(engine, threads, **limits)

    def bundles(self) -> Sequence[dict[str, Any]]:
        """All installed versions: `name`, `version`, `active`, `path`, `backend` and `manifest`."""
        return self._transport.bundles()

    def bundle_path(self, name: str) -> str:
        """Folder of a bundle's active version on the device.

        Raises:
            BundleError: no such bundle, or none of its versions is active.
        """
        return self._transport.bundle_path(name)

    def install(self, bundle: str | Path, name: str) -> str:
        """Install a bundle's directory under a name and make it the active version, which is returned.

        Raises:
            BundleError: it is incomplete or damaged.
            DeviceFull: no space on the device.
        """
        version = self._transport.install(Path(bundle), name)
        self._transport.activate(name, version)
        return version

    def rollback(self, name: str) -> str:
        """Make the previously active version active again; returns it.

        Raises:
            BundleError: no such bundle, or no earlier version.
        """
        return self._transport.rollback(name)

    def remove(self, name: str) -> None:
        """Remove a bundle with all its versions.

        Raises:
            BundleError: no such bundle.
        """
        self._transport.remove(name)

    def close(self) -> None:
        """End all sessions and the connection."""
        while self._loaded:
            self._loaded.popitem()[1].close()
        self._transport.close()


def _stamp(path: Path) -> _Stamp:
    """Files of a bundle as they are now.

    Raises:
        ModelFileError: there are none.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    try:
        found = [(str(file.absolute()), file.stat()) for file in files if file.is_file() or file == path]
    except FileNotFoundError as error:
        raise ModelFileError(f"{path}: no such bundle; sdk.deploy makes one") from error
    return tuple((name, status.st_size, status.st_mtime_ns) for name, status in found)
