"""A bundle: a directory (or a zip of one) with everything that a device needs to run one model.

    manifest.json   what it is: schema version, hashes, signature, parameters, kernels, figures
    lib.so          compiled model (backend tvm)
    params.bin      its parameters, each at a 64-byte boundary (backend tvm)
    model.*         the model file itself (backends onnxruntime and litert)
    golden.npz      golden cases: `caseN_inputI` and `caseN_outputI`, `caseN_spread` where the model has one
    tasks.json      the kernels' unscheduled functions and what they were made for (backend tvm)

The device agent reads the same files; the JSON schema below is all that the two sides share.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from host.errors import BundleError, DeviceFull, ModelFileError
from host.manifest import SCHEMA, Draft, Manifest, Parameter
from host.model import GoldenCase

if TYPE_CHECKING:
    from collections.abc import Iterator

ALIGNMENT = 64
TASKS = "tasks.json"
# What a bundle carries for people and checks; it decides nothing of what runs.
_BESIDE = {"golden.npz", TASKS}
_CHUNK_BYTES = 1 << 20
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MODEL_SUFFIX = {"onnxruntime": ".onnx", "litert": ".tflite"}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk into one clear error.

    Raises:
        DeviceFull: no space left where `path` is to be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DeviceFull(f"no space left while writing {path}: free some and run again") from error
        raise


def write_tvm(
    directory: Path,
    draft: Draft,
    library: Path,
    parameters: Iterable[np.ndarray],
    golden: Sequence[GoldenCase],
    tasks: str = "",
) -> Manifest:
    """Write a bundle of a compiled model into an empty or new directory.

    Parameters are written one by one, so that memory holds each only once.

    Raises:
        DeviceFull: no space left.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, directory / "lib.so")
        table = _write_parameters(directory / "params.bin", parameters)
        _write_golden(directory / "golden.npz", golden)
        if tasks:
            (directory / TASKS).write_text(tasks)
        return _seal(directory, draft, "lib.so", table)


def write_engine(directory: Path, draft: Draft, model: Path, golden: Sequence[GoldenCase]) -> Manifest:
    """Write a bundle of a model file that a library on the device runs.

    Raises:
        DeviceFull: no space left.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        name = f"model{_MODEL_SUFFIX[draft.backend]}"
        shutil.copyfile(model, directory / name)
        _write_golden(directory / "golden.npz", golden)
        return _seal(directory, draft, name, ())


def write_variant(
    directory: Path, source: Path, threads: int, library: Path | None = None, tasks: str = ""
) -> Manifest:
    """Write a bundle that differs from another one in threads, library or tasks; the rest is shared on disk.

    Args:
        directory: empty or new, on the same disk.
        source: the other bundle's directory.
        threads: that the model is to use.
        library: the compiled model; the other bundle's if None.
        tasks: text of tasks.json; the other bundle's if "".

    Raises:
        DeviceFull: no space left.
    """
    manifest = _read_manifest(source, _directory_bytes(source, "manifest.json"))
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name in manifest.files:
            if name == TASKS and tasks:
                (directory / name).write_text(tasks)
            else:
                _share(
                    library if library is not None and name == "lib.so" else source / name, directory / name
                )
        known = manifest.model_dump(include=set(Draft.model_fields))
        return _seal(directory, Draft(**known | {"threads": threads}), manifest.model, manifest.parameters)


def _share(file: Path, place: Path) -> None:
    try:
        place.hardlink_to(file)
    except OSError:
        # A file system without links, or another disk.
        shutil.copyfile(file, place)


def update(directory: Path, manifest: Manifest, **changes: Any) -> Manifest:
    """Rewrite the manifest with other figures; the content hash covers the files and stays."""
    changed = manifest.model_copy(update=changes)
    with writing(directory):
        _write_manifest(directory, changed)
    return changed


def load(path: Path) -> Manifest:
    """Read the manifest of a bundle directory or zip and check every file against its hash.

    Raises:
        ModelFileError: nothing there, or no bundle.
        BundleError: damaged, incomplete or of another schema version.
    """
    if not path.exists():
        raise ModelFileError(f"{path}: no such file or directory")
    if path.is_dir():
        return _checked(path, _read_manifest(path, _directory_bytes(path, "manifest.json")))
    if not zipfile.is_zipfile(path):
        raise ModelFileError(f"{path} is neither a bundle directory nor a zip of one")
    with zipfile.ZipFile(path) as archive:
        if "manifest.json" not in archive.namelist():
            raise ModelFileError(f"{path} holds no manifest.json: it is not a bundle")
        manifest = _read_manifest(path, archive.read("manifest.json"))
        for name, digest in manifest.files.items():
            _check_member(path, archive, name, digest)
    return manifest


def unpacked(path: Path, scratch: Path) -> Path:
    """A bundle as a directory: `path` itself, or its zip extracted under `scratch`.

    Raises:
        BundleError: the bundle is damaged.
        DeviceFull: no space left.
    """
    manifest = load(path)
    if path.is_dir():
        return path
    target = scratch / manifest.name
    with writing(target), zipfile.ZipFile(path) as archive:
        for name in ["manifest.json", *manifest.files]:
            archive.extract(name, target)
    return target


def runnable(directory: Path, manifest: Manifest) -> Path:
    """What an engine's session loads: the directory for tvm, the model file for the others."""
    return directory if manifest.backend == "tvm" else directory / manifest.model


def runnable_bytes(path: Path) -> int:
    """Bytes of what a device needs to run a bundle, directory or zip: no golden cases, no explanations.

    Raises:
        ModelFileError, BundleError: see `load`.
    """
    if path.is_dir():
        manifest = _read_manifest(path, _directory_bytes(path, "manifest.json"))
        sizes = {name: (path / name).stat().st_size for name in manifest.files}
    else:
        with zipfile.ZipFile(path) as archive:
            sizes = {one.filename: one.file_size for one in archive.infolist()}
    return sum(size for name, size in sizes.items() if name not in {"manifest.json", *_BESIDE})


def pack(directory: Path, archive: Path) -> None:
    """Write a bundle directory as a zip, whole or not at all."""
    partial = archive.with_name(f".{archive.name}.part")
    with writing(archive):
        try:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
                for file in sorted(directory.iterdir()):
                    out.write(file, file.name)
            partial.replace(archive)
        finally:
            partial.unlink(missing_ok=True)


def golden_cases(directory: Path, manifest: Manifest) -> tuple[GoldenCase, ...]:
    """The golden cases of a bundle directory."""
    cases = []
    inputs, outputs = len(manifest.signature.inputs), len(manifest.signature.outputs)
    with np.load(directory / "golden.npz", allow_pickle=False) as arrays:
        count = len({name.split("_")[0] for name in arrays.files})
        for case in range(count):
            cases.append(
                GoldenCase(
                    tuple(arrays[f"case{case}_input{i}"] for i in range(inputs)),
                    tuple(arrays[f"case{case}_output{i}"] for i in range(outputs)),
                    float(arrays[f"case{case}_spread"]) if f"case{case}_spread" in arrays else 0.0,
                )
            )
    return tuple(cases)


def _write_parameters(path: Path, parameters: Iterable[np.ndarray]) -> tuple[Parameter, ...]:
    table = []
    with path.open("wb") as file:
        for array in parameters:
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            whole = np.ascontiguousarray(array)
            table.append(
                Parameter(offset=file.tell(), nbytes=whole.nbytes, shape=array.shape, dtype=str(array.dtype))
            )
            file.write(whole.reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
    return tuple(table)


def _write_golden(path: Path, golden: Sequence[GoldenCase]) -> None:
    arrays: dict[str, np.ndarray] = {}
    for index, case in enumerate(golden):
        arrays |= {f"case{index}_input{i}": value for i, value in enumerate(case.inputs)}
        arrays |= {f"case{index}_output{i}": value for i, value in enumerate(case.outputs)}
        if case.spread > 0.0:
            arrays[f"case{index}_spread"] = np.asarray(case.spread)
    np.savez(path, allow_pickle=False, **arrays)


def _seal(directory: Path, draft: Draft, model_file: str, table: tuple[Parameter, ...]) -> Manifest:
    files = {p.name: file_hash(p) for p in sorted(directory.iterdir()) if p.name != "manifest.json"}
    content = {
        "files": {name: digest for name, digest in files.items() if name not in _BESIDE},
        # What is at its default stays out, so that a new optional field changes no hash.
        "signature": draft.signature.model_dump(exclude_defaults=True),
        "parameters": [p.model_dump() for p in table],
        "backend": draft.backend,
        "threads": draft.threads,
    }
    manifest = Manifest(
        **draft.model_dump(),
        content_hash=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        files=files,
        model=model_file,
        parameters=table,
    )
    _write_manifest(directory, manifest)
    return manifest


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    text = manifest.model_dump_json(indent=1, by_alias=True)
    partial = directory / ".manifest.part"
    partial.write_text(text)
    partial.replace(directory / "manifest.json")


def _directory_bytes(directory: Path, name: str) -> bytes:
    try:
        return (directory / name).read_bytes()
    except FileNotFoundError:
        raise ModelFileError(f"{directory} holds no {name}: it is not a bundle") from None


def _read_manifest(path: Path, text: bytes) -> Manifest:
    try:
        raw = json.loads(text)
        schema = raw.get("schema") if isinstance(raw, dict) else None
        if schema != SCHEMA:
            raise BundleError(
                f"{path} has bundle schema {schema!r}, this program reads {SCHEMA!r}: make it again"
            )
        manifest = Manifest.model_validate(raw)
    except (ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise BundleError(f"{path}: manifest.json is damaged ({reason}): make the bundle again") from error
    for name in [*manifest.files, manifest.model]:
        if len(PurePosixPath(name).parts) != 1 or name in (".", ".."):
            raise BundleError(f"{path}: manifest.json names the file {name!r} outside the bundle")
    return manifest


def _checked(directory: Path, manifest: Manifest) -> Manifest:
    for name, digest in manifest.files.items():
        file = directory / name
        if not file.is_file():
            raise BundleError(f"{directory} lacks {name}: copy or make the bundle again")
        if file_hash(file) != digest:
            raise BundleError(
                f"{file} does not match the hash in the manifest: copy or make the bundle again"
            )
    return manifest


def _check_member(path: Path, archive: zipfile.ZipFile, name: str, digest: str) -> None:
    hasher = hashlib.sha256()
    try:
        with archive.open(name) as file:
            while chunk := file.read(_CHUNK_BYTES):
                hasher.update(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise BundleError(f"{path}: {name} is missing or damaged: copy or make the bundle again") from error
    if hasher.hexdigest() != digest:
        raise BundleError(f"{path}: {name} does not match the hash in the manifest: make the bundle again")


def file_hash(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()
