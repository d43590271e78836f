"""Bundles read, as a directory or a zip of one: checked whole before anything is done by them."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from pydantic import ValidationError

from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import (
    BESIDE,
    MANIFEST,
    SIGNATURE,
    ContractError,
    FileEntry,
    check_manifest,
)
from device_agent.contract.signing import check_signature, parse_signature
from device_agent.contract.text import printable
from device_agent.contract.verify import read_bounded, verify_directory
from host.bundle.disk import writing
from host.errors import BundleError, ModelFileError
from host.manifest import Manifest
from host.model import GoldenCase
from targets import MachineDescription

GOLDEN, TASKS = BESIDE
_CHUNK_BYTES = 1 << 20
_ENCRYPTED = 1
# As `pack` writes them; other methods are refused before their libraries see the data.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Whatever zipfile and zlib raise for a damaged archive, or for one that they cannot read.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, RuntimeError),
    *(NotImplementedError, ValueError, OverflowError),
)


def load(path: Path) -> Manifest:
    """Read the manifest of a bundle directory or zip and check signature and every file.

    Whether the signer is trusted is a question for the device that is to run it.

    Raises:
        ModelFileError: nothing there, or no bundle.
        BundleError: damaged, incomplete, changed, or of another schema version.
    """
    if not path.exists():
        raise ModelFileError(f"{path}: no such file or directory")
    if path.is_dir():
        with _refused(path):
            return _typed(verify_directory(str(path)).manifest.fields)
    with _opened(path) as archive:
        manifest, files = _check_members(archive, path)
        for name, entry in files.items():
            _copy_member(archive, name, entry, None)
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
        raise ModelFileError(f"{path}: no such file or directory")
    # Never named by what the archive says.
    with writing(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
        target = Path(tempfile.mkdtemp(prefix="bundle-", dir=scratch))
    try:
        with writing(target), _opened(path) as archive:
            _, files = _check_members(archive, path)
            for name in (MANIFEST, SIGNATURE):
                if name in archive.namelist():
                    (target / name).write_bytes(_small_member(archive, name))
            for name, entry in files.items():
                with (target / name).open("xb") as file:
                    _copy_member(archive, name, entry, file)
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
    if manifest.backend != "tvm" or not architecture or architecture == machine.machine:
        return
    raise BundleError(
        f"{path} was compiled for {printable(architecture, 40)}, and {device} is "
        f"{printable(machine.machine, 40)}: deploy the model to this device, or compile it with --target"
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
    inputs, outputs = len(manifest.signature.inputs), len(manifest.signature.outputs)
    try:
        with np.load(directory / GOLDEN, allow_pickle=False) as arrays:
            # As they were written: nothing in it unpacks to more than the file.
            if any(one.compress_type != zipfile.ZIP_STORED for one in arrays.zip.infolist()):
                raise ValueError("they are compressed")
            count = len({name.split("_")[0] for name in arrays.files})
            return tuple(
                GoldenCase(
                    tuple(arrays[f"case{case}_input{i}"] for i in range(inputs)),
                    tuple(arrays[f"case{case}_output{i}"] for i in range(outputs)),
                    float(arrays[f"case{case}_spread"]) if f"case{case}_spread" in arrays else 0.0,
                )
                for case in range(count)
            )
    except (*_DAMAGED, OSError, TypeError, MemoryError, AttributeError) as error:
        raise BundleError(
            f"{directory}: its golden cases cannot be read ({printable(error, 100)}): make the bundle again"
        ) from error


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
        raise ModelFileError(f"{path} holds no {MANIFEST}: it is not a bundle") from None
    except ContractError as error:
        raise BundleError(f"bundle {path}: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """A bundle's archive."""
    try:
        if not zipfile.is_zipfile(path):
            raise ModelFileError(f"{path} is neither a bundle directory nor a zip of one")
        with _refused(path), zipfile.ZipFile(path) as archive:
            if MANIFEST not in archive.namelist():
                raise ModelFileError(f"{path} holds no {MANIFEST}: it is not a bundle")
            yield archive
    except _DAMAGED as error:
        raise _damaged(path, error) from error
    except OSError as error:
        # A place before the file's beginning, which a damaged directory of the archive names.
        if error.errno != errno.EINVAL:
            raise
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> BundleError:
    return BundleError(
        f"bundle {path}: the archive is damaged ({printable(error, 100)}): copy or make the bundle again"
    )


def _check_members(archive: zipfile.ZipFile, path: Path) -> tuple[Manifest, dict[str, FileEntry]]:
    """The manifest of an archive, of which nothing has been unpacked, and what its files must be like.

    Raises:
        ContractError: manifest or signature is damaged, or the archive holds other files.
    """
    bounds = LIMITS.bundle
    names = archive.namelist()
    if len(names) > bounds.files + 2 or len(set(names)) != len(names):
        raise ContractError(
            f"the archive holds {len(names)} files, some of them twice or more than a bundle has"
        )
    if any(one.compress_type not in _METHODS or one.flag_bits & _ENCRYPTED for one in archive.infolist()):
        raise ContractError("the archive is encrypted, or packed in another way than a bundle's")
    data = _small_member(archive, MANIFEST)
    checked = check_manifest(data)
    if SIGNATURE in names:
        check_signature(data, parse_signature(_small_member(archive, SIGNATURE)))
    expected = {MANIFEST, *checked.files} | ({SIGNATURE} & set(names))
    for name in sorted(expected - set(names)):
        raise ContractError(f"it lacks {name}: copy or make the bundle again")
    for name in sorted(set(names) - expected):
        raise ContractError(f"it holds {printable(name)}, which its manifest does not name")
    for name, entry in checked.files.items():
        if archive.getinfo(name).file_size != entry.size:
            raise ContractError(
                f"{name} does not match the hash in the manifest: copy or make the bundle again"
            )
    total, packed = sum(entry.size for entry in checked.files.values()), path.stat().st_size
    if total > bounds.unpacked_bytes + bounds.unpacked_ratio * packed:
        raise ContractError(
            f"its {packed} bytes unpack to {total}, more than {bounds.unpacked_ratio} times as much:"
            " if that is right, unpack it yourself and give the directory"
        )
    return _typed(checked.fields), checked.files


def _small_member(archive: zipfile.ZipFile, name: str) -> bytes:
    most = LIMITS.bundle.manifest_bytes
    with archive.open(name) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ContractError(f"{name} has more than {most} bytes")
    return data


def _copy_member(archive: zipfile.ZipFile, name: str, entry: FileEntry, target: IO[bytes] | None) -> None:
    """Read a file of an archive, and write it somewhere, as long as it is what the manifest says."""
    hasher = hashlib.sha256()
    size = 0
    with archive.open(name) as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > entry.size:
                break
            hasher.update(chunk)
            if target is not None:
                target.write(chunk)
    if size != entry.size or hasher.hexdigest() != entry.sha256:
        raise ContractError(f"{name} does not match the hash in the manifest: copy or make the bundle again")
