"""What the functions of the API return: deployments, models and loaded bundles."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_agent.contract.tensors import with_type
from device_agent.contract.text import printable
from host.closing import Closing
from host.errors import BundleError, ModelFileError, ShapeError
from host.table import Table, Tabular

if TYPE_CHECKING:
    import numpy as np

    from host.deploy import DeployResult
    from host.model import Signature, TensorSpec
    from host.transport import Device

    Inputs = Mapping[str, np.ndarray] | Sequence[np.ndarray] | np.ndarray


@dataclass(frozen=True)
class Deployment(Tabular):
    """A finished deployment.

    Attributes:
        result: every figure.
        report: the HTML file.
    """

    result: DeployResult
    report: Path

    @property
    def bundle(self) -> Path:
        """The folder or the archive of the bundle on this host."""
        return self.result.bundle

    def tables(self) -> tuple[Table, ...]:
        """The tables of the deployment's result, for a notebook."""
        return self.result.tables()


class LoadedBundle:
    """A bundle loaded in a session of its own on a connected device.

    Args:
        path: bundle directory or zip, or the name of a model that is installed on the device.
        device: connected.
        trust: "signed": the device has to trust the bundle's signer; "unsigned": any bundle is accepted.

    Attributes:
        warning: one line where the device does not trust the bundle's signer; else "".

    Raises:
        ModelFileError: there is no bundle.
        BundleError: it is damaged, revoked, or not trusted by the device.
        EngineError: the device cannot run it.
    """

    def __init__(self, path: Path, device: Device, trust: str = "signed") -> None:
        from host import bundle

        with ExitStack() as stack:
            installed = None if path.exists() else installed_bundle(path, device)
            if installed is None:
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="edgetlm-"))
                directory = bundle.unpacked(path, Path(scratch))
                manifest = bundle.load(directory)
            else:
                manifest = bundle.manifest_from(installed["manifest"], f"{path} on {device.name}")
            bundle.require_processor(manifest, str(path), device.describe(), device.name)
            self.signature: Signature = manifest.typed_signature()
            self._session = stack.enter_context(
                device.open_session(manifest.backend, threads=manifest.threads)
            )
            if installed is not None:
                self._session.load_installed(installed["path"], trust)
            else:
                try:
                    self._session.load(directory, trust)
                except BundleError as error:
                    # A zip was unpacked somewhere that means nothing to its owner.
                    raise BundleError(str(error).replace(str(directory), str(path))) from error
            self.warning = self._session.warning
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End the session."""
        self._stack.close()

    def run(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """One inference.

        Args:
            inputs: arrays by input name, or a list in the signature's order, or the array of the only input;
                with the signature's shapes and types, of any length in its range. Tensors of PyTorch on the
                CPU are arrays too.

        Returns:
            Outputs by name.

        Raises:
            ShapeError: an input is missing, unknown, or does not fit.
            DeviceError: the device or its session went away.
        """
        named = self._named(inputs)
        unknown = sorted(set(named) - {spec.name for spec in self.signature.inputs})
        if unknown:
            raise ShapeError(f"the model has no input {unknown[0]!r}: it takes {self._names()}")
        ordered = [self._checked(spec, named) for spec in self.signature.inputs]
        self.signature.length_of([value.shape for value in ordered])
        outputs = self._session.run(ordered)
        return {spec.name: value for spec, value in zip(self.signature.outputs, outputs, strict=True)}

    def _named(self, inputs: Inputs) -> Mapping[str, np.ndarray]:
        if isinstance(inputs, Mapping):
            return inputs
        values: list[Any] = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        expected = len(self.signature.inputs)
        if len(values) != expected:
            raise ShapeError(
                f"inputs given: {len(values)}, the model takes {expected}: {self._names()}: give them by name"
            )
        return {spec.name: value for spec, value in zip(self.signature.inputs, values, strict=True)}

    def _names(self) -> str:
        return ", ".join(spec.name for spec in self.signature.inputs)

    def _checked(self, spec: TensorSpec, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        if spec.name not in inputs:
            raise ShapeError(f"input {spec.name!r} is missing: the model takes {self._names()}")
        value: Any = inputs[spec.name]
        if hasattr(value, "__array__") and not hasattr(getattr(value, "dtype", None), "kind"):
            value = _of_another_library(spec.name, value)
        if not hasattr(value, "dtype") or not hasattr(value, "shape"):
            raise ShapeError(f"input {spec.name!r} is a {type(value).__name__}: give a numpy array")
        if hasattr(value.dtype, "kind"):  # an array of NumPy, perhaps of a file
            value = with_type(value, spec.dtype)
        if str(value.dtype) != spec.dtype:
            raise ShapeError(
                f"input {spec.name!r} is {value.dtype}{list(value.shape)}, the model takes "
                f"{self.signature.type_of(spec)}: convert it with .astype({spec.dtype!r})"
            )
        array: np.ndarray = value
        return array


def _of_another_library(name: str, value: Any) -> np.ndarray:
    """A tensor of PyTorch, or what else says that it can be an array of NumPy, as one."""
    import numpy as np

    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"input {name!r} is a {type(value).__name__} that NumPy cannot read ({printable(error, 120)}): "
            "give a numpy array"
        ) from error


def installed_bundle(path: Path, device: Device) -> Mapping[str, Any]:
    """The active version of an installed model, as the device lists it.

    Raises:
        ModelFileError: there is neither a bundle nor an installed model of this name.
        BundleError: its manifest is damaged.
    """
    for one in device.bundles():
        if one["name"] == str(path) and one["active"]:
            if not one["manifest"]:
                raise BundleError(f"{path} on {device.name} is damaged: deploy the model again")
            return one
    raise ModelFileError(
        f"{path}: no such bundle, and {device.name} has no model of this name: sdk bundles lists those it has"
    )


class Model(LoadedBundle, Closing):
    """A bundle loaded on a device, with a connection of its own; a context manager.

    Args:
        path: bundle directory or zip, or the name of a model that is installed on the device.
        device: name of the device.
        trust: see LoadedBundle.

    Raises:
        ModelFileError: there is no bundle.
        BundleError: it is damaged, revoked, or not trusted by the device.
        EngineError: the device cannot run it.
    """

    def __init__(self, path: Path, device: str, trust: str = "signed") -> None:
        from host.transport import connect

        with ExitStack() as stack:
            super().__init__(path, stack.enter_context(connect(device)), trust)
            # The session ends before the connection.
            stack.push(self._stack)
            self._stack = stack.pop_all()
