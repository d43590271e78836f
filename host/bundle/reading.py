"""Bundles read, as a directory or a zip of one: checked whole before anything is done by them."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import BESIDE, MANIFEST, ContractError, FileEntry, check_manifest
from device_agent.contract.tensors import with_type
from device_agent.contract.text import printable
from device_agent.contract.verify import read_bounded, verify_directory
from host.bundle.archive import DAMAGED_ARRAYS, check_members, copy_member, copy_seal, is_archive, reading
from host.errors import BundleError, ModelFileError
from host.files import writing
from host.manifest import Manifest, Tensor
from host.model import GoldenCase
from targets import MachineDescription
from targets.x86_64 import required_tiles

GOLDEN, TASKS = BESIDE
_KIND = "bundle"
_NEXT = "sdk deploy or sdk compile makes a bundle of a model file"


def load(path: Path) -> Manifest:
    """Read the manifest of a bundle directory or zip and check signature and every file.

    Whether the signer is trusted is a question for the device that is to run it.

    Raises:
        ModelFileError: nothing there, or no bundle.
        BundleError: damaged, incomplete, changed, or of another schema version.
    """
    if not path.exists():
        raise ModelFileError(f"{path}: no such file or directory: {_NEXT}")
    if path.is_dir():
        with _refused(path):
            return _typed(verify_directory(str(path)).manifest.fields)
    with _opened(path) as archive:
        manifest, files = _check_members(archive, path)
        for name, entry in files.items():
            copy_member(archive, name, entry, None, _KIND)
    return manifest


def unpacked(path: Path, scratch: Path) -> Path:
    """A bundle as a directory: `path` itself, or its zip extracted into a folder of its own below `scratch`.

    Raises:
        ModelFileError, BundleError: see `load`.
        DeviceFull: no space left.
    """
    if path.is_dir():
        load(path)
        return path
    if not path.exists():
        raise ModelFileError(f"{path}: no such file or directory: {_NEXT}")
    # Never named by the archive's own text.
    with writing(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
        target = Path(tempfile.mkdtemp(prefix="bundle-", dir=scratch))
    try:
        with writing(target), _opened(path) as archive:
            _, files = _check_members(archive, path)
            copy_seal(archive, target)
            for name, entry in files.items():
                with (target / name).open("xb") as file:
                    copy_member(archive, name, entry, file, _KIND)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a bundle directory, checked; its files are not.

    Raises:
        ModelFileError: it is no bundle.
        BundleError: the manifest is damaged.
    """
    with _refused(directory):
        data = read_bounded(str(directory / MANIFEST), LIMITS.bundle.manifest_bytes)
        return _typed(check_manifest(data).fields)


def manifest_from(fields: Mapping[str, object], where: str) -> Manifest:
    """The manifest of a bundle that a device has, checked.

    Args:
        fields: of the manifest, as its agent sent them.
        where: the bundle is, for messages.

    Raises:
        BundleError: the manifest is damaged.
    """
    with _refused(Path(where)):
        return _typed(check_manifest(json.dumps(dict(fields)).encode()).fields)


def require_processor(manifest: Manifest, path: str, machine: MachineDescription, device: str) -> None:
    """Refuse a compiled model for another processor, which the device's loader would call missing.

    Args:
        manifest: of the bundle.
        path: of the bundle, for the message.
        machine: that is to run it.
        device: name of the machine.

    Raises:
        BundleError: the bundle is for another architecture.
    """
    host = manifest.target.get("host")
    triple = manifest.target.get("mtriple") or (host.get("mtriple") if isinstance(host, dict) else None)
    architecture = str(triple or "").split("-")[0]
    if manifest.backend != "tvm" or not architecture:
        return
    if architecture == machine.machine:
        _require_tiles(manifest, path, machine, device)
        return
    raise BundleError(
        f"{path} was compiled for {printable(architecture, 40)}, and {device} is "
        f"{printable(machine.machine, 40)}: deploy the model to this device, or compile it with --target"
    )


def _require_tiles(manifest: Manifest, path: str, machine: MachineDescription, device: str) -> None:
    """Refuse programs with registers of matrices for a processor without them, where they would end."""
    missing = [name for name in required_tiles(manifest.target) if name not in machine.features]
    if missing:
        raise BundleError(
            f"{path} was compiled for a processor with {', '.join(missing)}, which {device} lacks or its "
            "kernel refuses: deploy the model to this device, or compile it with --target"
        )


def runnable_bytes(path: Path) -> int:
    """Bytes of what a device needs to run a bundle, directory or zip: no golden cases, no explanations.

    Raises:
        ModelFileError, BundleError: see `load`.
    """
    if path.is_dir():
        manifest = read_manifest(path)
    else:
        with _opened(path) as archive:
            manifest, _ = _check_members(archive, path)
    return sum(entry.size for name, entry in manifest.files.items() if name not in BESIDE)


def golden_cases(directory: Path, manifest: Manifest) -> tuple[GoldenCase, ...]:
    """The golden cases of a bundle directory.

    Raises:
        BundleError: they cannot be read, or do not fit the signature.
    """
    inputs, outputs = manifest.signature.inputs, manifest.signature.outputs
    try:
        with np.load(directory / GOLDEN, allow_pickle=False) as arrays:
            # As they were written: nothing in it unpacks to more than the file.
            if any(one.compress_type != zipfile.ZIP_STORED for one in arrays.zip.infolist()):
                raise ValueError("they are compressed")
            count = len({name.split("_")[0] for name in arrays.files})
            return tuple(_case(arrays, f"case{case}", inputs, outputs) for case in range(count))
    except (*DAMAGED_ARRAYS, OSError) as error:
        raise BundleError(
            f"{directory}: its golden cases cannot be read ({printable(error, 100)}): make the bundle again"
        ) from error


def _case(
    arrays: np.lib.npyio.NpzFile, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> GoldenCase:
    spread = float(arrays[f"{name}_spread"]) if f"{name}_spread" in arrays else 0.0
    if f"{name}_function" not in arrays:
        return GoldenCase(
            tuple(with_type(arrays[f"{name}_input{i}"], one.dtype) for i, one in enumerate(inputs)),
            tuple(with_type(arrays[f"{name}_output{i}"], one.dtype) for i, one in enumerate(outputs)),
            spread,
            shares=_shares(arrays, f"{name}_shares", len(outputs)),
        )

    def of(kind: str) -> tuple[np.ndarray, ...]:
        # Those of functions beside main are of types that numpy has.
        count = sum(one.startswith(f"{name}_{kind}") for one in arrays.files)
        return tuple(arrays[f"{name}_{kind}{i}"] for i in range(count))

    function = printable(str(arrays[f"{name}_function"]), LIMITS.wire.name_characters)
    return GoldenCase(of("input"), of("output"), spread, function)


def _shares(arrays: np.lib.npyio.NpzFile, name: str, outputs: int) -> tuple[float | None, ...]:
    if name not in arrays:
        return ()
    shares = [None if np.isnan(share) else float(share) for share in arrays[name].astype(np.float64)]
    if len(shares) != outputs:
        raise ValueError(f"{len(shares)} shares of {outputs} outputs")
    return tuple(shares)


def _typed(fields: dict[str, object]) -> Manifest:
    try:
        return Manifest.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ContractError(
            f"its {printable(where, 100)} is wrong: {printable(first['msg'], 100)}"
        ) from error


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Turn what the contract refuses into the host's own errors."""
    try:
        yield
    except FileNotFoundError:
        raise ModelFileError(f"{path} holds no {MANIFEST}: it is not a bundle: {_NEXT}") from None
    except ContractError as error:
        raise BundleError(f"bundle {path}: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a bundle that is a zip file.

    Raises:
        ModelFileError: the file is no zip, is damaged, or has no manifest.
    """
    if not is_archive(path):
        raise ModelFileError(f"{path} is neither a bundle directory nor a zip of one: {_NEXT}")
    with _refused(path), reading(path, _KIND) as archive:
        if MANIFEST not in archive.namelist():
            raise ModelFileError(f"{path} holds no {MANIFEST}: it is not a bundle: {_NEXT}")
        yield archive


def _check_members(archive: zipfile.ZipFile, path: Path) -> tuple[Manifest, Mapping[str, FileEntry]]:
    """The manifest of an archive, of which nothing has been unpacked, and what its files must be like.

    Raises:
        ContractError: manifest or signature is damaged, or the archive holds other files.
    """
    members = check_members(archive, path, _KIND, lambda data: check_manifest(data).files)
    return _typed(check_manifest(members.manifest).fields), members.files
