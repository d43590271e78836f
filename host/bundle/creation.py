"""Bundles written, sealed by their manifest and signed, as a directory or a zip of one."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from device_agent.contract.language.chat_templates import CHAT
from device_agent.contract.limits import LIMITS
from device_agent.contract.manifest import (
    MANIFEST,
    PARAMETERS,
    SIGNATURE,
    TOKENIZER,
    ContractError,
    as_name,
    check_manifest,
)
from device_agent.contract.tensors import without_type
from device_agent.contract.text import printable
from host.bundle.reading import GOLDEN, TASKS, read_manifest
from host.errors import BundleError
from host.files import file_hash, writing, written_whole
from host.keys import host_key
from host.manifest import Draft, FilePart, Manifest, MemoryPart, Parameter, schema_of
from host.model import GoldenCase

if TYPE_CHECKING:
    pass

ALIGNMENT = LIMITS.bundle.alignment
_TEXT_CHARACTERS = 4000
# Of model files of other runtimes than these.
_MODEL_SUFFIX, _USUAL_SUFFIX = {"litert": ".tflite"}, ".onnx"


def write_tvm(
    directory: Path,
    draft: Draft,
    library: Path,
    parameters: Iterable[np.ndarray],
    golden: Sequence[GoldenCase],
    tasks: str = "",
    tokenizer: Path | bytes | None = None,
    chat: bytes | None = None,
) -> Manifest:
    """Write a bundle of a compiled model into an empty or new directory.

    Parameters are written one by one, so that memory holds each only once.

    Args:
        directory: of the bundle.
        draft: its manifest without the files.
        library: the compiled model.
        parameters: that the model reads, in order.
        golden: cases to verify it with.
        tasks: text of tasks.json; none if "".
        tokenizer: of a language model, a `tokenizer.json` or the content of one; None where there is none.
        chat: of a language model, the content of its file of chat templates; None where there is none.

    Raises:
        DeviceFull: no space left.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library, directory / "lib.so")
        table = _write_parameters(directory / PARAMETERS, parameters)
        _write_golden(directory / GOLDEN, golden)
        if tasks:
            (directory / TASKS).write_text(tasks)
        if isinstance(tokenizer, bytes):
            (directory / TOKENIZER).write_bytes(tokenizer)
        elif tokenizer is not None:
            shutil.copyfile(tokenizer, directory / TOKENIZER)
        if chat is not None:
            (directory / CHAT).write_bytes(chat)
        return _seal(directory, draft, "lib.so", table)


def write_engine(directory: Path, draft: Draft, model: Path, golden: Sequence[GoldenCase]) -> Manifest:
    """Write a bundle of a model file that a library on the device runs.

    Raises:
        DeviceFull: no space left.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        name = f"model{_MODEL_SUFFIX.get(draft.backend, _USUAL_SUFFIX)}"
        shutil.copyfile(model, directory / name)
        _write_golden(directory / GOLDEN, golden)
        return _seal(directory, draft, name, ())


def write_variant(
    directory: Path,
    source: Path,
    threads: int,
    library: Path | None = None,
    tasks: str = "",
    memory: MemoryPart | None = None,
) -> Manifest:
    """Write a bundle that differs from another one in threads, library or tasks; the rest is shared on disk.

    Args:
        directory: empty or new, on the same disk.
        source: the other bundle's directory.
        threads: that the model is to use.
        library: the compiled model; the other bundle's if None.
        tasks: text of tasks.json; the other bundle's if "".
        memory: what the compiled model takes; what is said of the other bundle's if None.

    Raises:
        DeviceFull: no space left.
    """
    manifest = read_manifest(source)
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
        changed = {"threads": threads} | ({"memory": memory} if memory is not None else {})
        return _seal(directory, Draft(**known | changed), manifest.model, manifest.parameters)


def _share(file: Path, place: Path) -> None:
    try:
        place.hardlink_to(file)
    except OSError:
        # A file system without links, or another disk.
        shutil.copyfile(file, place)


def update(directory: Path, manifest: Manifest, **changes: Any) -> Manifest:
    """Rewrite the manifest with other figures, and sign it; what the bundle computes stays."""
    changed = manifest.model_copy(update=changes)
    with writing(directory):
        _write_manifest(directory, changed)
    return changed


def pack(directory: Path, archive: Path) -> None:
    """Write a bundle directory as a zip, whole or not at all."""
    with (
        writing(archive),
        written_whole(archive) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out,
    ):
        for file in sorted(directory.iterdir()):
            out.write(file, file.name)


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
        if table and not file.tell():
            file.write(b"\0")  # all are empty, and no executor can map an empty file
        file.flush()
        os.fsync(file.fileno())
    return tuple(table)


def _write_golden(path: Path, golden: Sequence[GoldenCase]) -> None:
    arrays: dict[str, np.ndarray] = {}
    for index, case in enumerate(golden):
        arrays |= {f"case{index}_input{i}": without_type(value) for i, value in enumerate(case.inputs)}
        arrays |= {f"case{index}_output{i}": without_type(value) for i, value in enumerate(case.outputs)}
        if case.spread > 0.0:
            arrays[f"case{index}_spread"] = np.asarray(case.spread)
        if any(share is not None for share in case.shares):
            shares = [np.nan if share is None else share for share in case.shares]
            arrays[f"case{index}_shares"] = np.asarray(shares, np.float64)
        if case.function:
            arrays[f"case{index}_function"] = np.asarray(case.function)
    np.savez(path, allow_pickle=False, **arrays)


def _seal(directory: Path, draft: Draft, model_file: str, table: tuple[Parameter, ...]) -> Manifest:
    files = {
        path.name: FilePart(size=path.stat().st_size, sha256=file_hash(path))
        for path in sorted(directory.iterdir())
        if path.name not in (MANIFEST, SIGNATURE)
    }
    known = draft.model_dump() | {
        # A file's name may be no text at all, and a reason may quote text of the model.
        "command": printable(draft.command, _TEXT_CHARACTERS),
        "reason": printable(draft.reason, _TEXT_CHARACTERS),
        "origin": draft.origin.model_copy(update={"name": printable(draft.origin.name)}),
        "name": as_name(draft.name),
    }
    manifest = Manifest(
        **known, schema=schema_of(draft.state), files=files, model=model_file, parameters=table
    )
    _write_manifest(directory, manifest)
    return manifest


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write and sign the manifest; a bundle between the two renames is refused as changed."""
    text = manifest.model_dump_json(indent=1, by_alias=True).encode()
    try:
        check_manifest(text)
    except ContractError as error:
        raise BundleError(f"the model cannot be put in a bundle: {error}") from error
    signature = json.dumps(host_key().sign(text).fields()).encode()
    # Beside the bundle, in which nothing else may lie.
    partial = directory.with_name(f".{directory.name}.manifest.part")
    for name, content in ((SIGNATURE, signature), (MANIFEST, text)):
        partial.write_bytes(content)
        partial.replace(directory / name)
