"""Samples for a calibration, out of NumPy's files: from elsewhere, so nothing of them is unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from device_agent.contract.text import printable
from host.errors import UserError
from host.model import TensorSpec

MAX_SAMPLES = 1024
MAX_BYTES = 1 << 30
# Of the description of an array; NumPy's own take about a hundred.
_HEADER_BYTES = 4096
_MAGIC = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

Sample = tuple[np.ndarray, ...]


def read_samples(path: Path, inputs: Sequence[TensorSpec]) -> list[Sample]:
    """The samples of a calibration, each with an array for every input.

    Args:
        path: a `.npz` file whose arrays are named as the inputs and have one more axis in front, over
            samples; or a folder with a `.npz` file for each sample, or a `.npy` file where the model has one
            input. The files of a folder are taken in the order of their names.
        inputs: of the model, shapes pinned.

    Returns:
        Arrays in the order of the inputs, of their shapes and types.

    Raises:
        UserError: there is no such file, or an array is missing, of another shape or type, not finite, or
            beyond `MAX_SAMPLES` or `MAX_BYTES`.
    """
    try:
        if path.is_dir():
            return _of_folder(path, inputs)
        return _of_file(path, inputs)
    except (OSError, zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise UserError(
            f"--calibration {printable(path)}: it cannot be read ({printable(error, 120)}): write plain "
            "arrays with numpy.savez or numpy.save"
        ) from error


def _of_file(path: Path, inputs: Sequence[TensorSpec]) -> list[Sample]:
    """The samples of one file, along the first axis of its arrays."""
    arrays = _named(path, _arrays(path, MAX_BYTES), inputs)
    counts = {spec.name: _count(path, spec, arrays[spec.name]) for spec in inputs}
    count = min(counts.values())
    if count != max(counts.values()):
        listed = ", ".join(f"{printable(name, 60)} {number}" for name, number in counts.items())
        raise _wrong(path, f"its arrays have different numbers of samples: {listed}")
    if not 1 <= count <= MAX_SAMPLES:
        raise _wrong(path, f"it has {count} samples: give 1 to {MAX_SAMPLES}")
    rows = {spec.name: arrays[spec.name].reshape((count, *spec.shape)) for spec in inputs}
    return [tuple(_checked(path, spec, rows[spec.name][index]) for spec in inputs) for index in range(count)]


def _count(path: Path, spec: TensorSpec, array: np.ndarray) -> int:
    """Samples of an array: it has an axis over them, or its batch of one is that axis."""
    alike = spec.shape[1:] if spec.shape[:1] == (1,) else None
    if array.ndim < 1 or array.shape[1:] not in (spec.shape, alike):
        wanted = f"[samples, {', '.join(map(str, spec.shape))}]"
        raise _wrong(
            path, f"{printable(spec.name, 60)} is {list(array.shape)}, and {wanted} is what the model needs"
        )
    return len(array)


def _of_folder(path: Path, inputs: Sequence[TensorSpec]) -> list[Sample]:
    """The samples of a folder, one of each file."""
    files = sorted(entry for entry in path.iterdir() if entry.suffix in (".npz", ".npy") and entry.is_file())
    if not 1 <= len(files) <= MAX_SAMPLES:
        raise _wrong(
            path, f"it has {len(files)} files of .npz or .npy: give 1 to {MAX_SAMPLES}, one a sample"
        )
    samples, left = [], MAX_BYTES
    for file in files:
        found = _arrays(file, left)
        left -= sum(array.nbytes for array in found.values())
        if file.suffix == ".npy" and len(inputs) != 1:
            names = ", ".join(printable(spec.name, 60) for spec in inputs)
            raise _wrong(
                file, f"the model has {len(inputs)} inputs ({names}): give .npz files with all of them"
            )
        named = {inputs[0].name: found[""]} if file.suffix == ".npy" else _named(file, found, inputs)
        samples.append(tuple(_checked(file, spec, named[spec.name]) for spec in inputs))
    return samples


def _arrays(path: Path, most: int) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` file by name, or that of a `.npy` file under ""."""
    if not zipfile.is_zipfile(path):
        if path.suffix == ".npz":
            raise ValueError("no .npz file")
        with path.open("rb") as stream:
            return {"": _array(stream, path.stat().st_size, most)}
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if len(entries) > MAX_SAMPLES or sum(entry.file_size for entry in entries) > most:
            raise _wrong(path, f"it has over {MAX_SAMPLES} arrays or {most / 1e9:.1f} GB: give fewer samples")
        for entry in entries:
            with archive.open(entry) as stream:
                found[entry.filename.removesuffix(".npy")] = _array(stream, entry.file_size, most)
    return found


def _array(stream: IO[bytes], size: int, most: int) -> np.ndarray:
    """An array, its description checked before anything is made for it."""
    version = np.lib.format.read_magic(stream)
    if version not in _MAGIC:
        raise ValueError(f"a file of version {version}")
    shape, by_columns, dtype = _MAGIC[version](stream, max_header_size=_HEADER_BYTES)
    if dtype.hasobject or dtype.names is not None or dtype.kind not in "fiub":
        raise ValueError(f"an array of {dtype}")
    needed = math.prod(shape) * dtype.itemsize
    if any(length < 0 for length in shape) or needed > min(size, most):
        raise ValueError(f"an array of {list(shape)} in {size} bytes")
    content = stream.read(needed)
    if len(content) != needed:
        raise ValueError(f"an array of {list(shape)} in {size} bytes")
    values = np.frombuffer(content, dtype)
    return values.reshape(shape[::-1]).T if by_columns else values.reshape(shape)


def _named(
    path: Path, found: Mapping[str, np.ndarray], inputs: Sequence[TensorSpec]
) -> Mapping[str, np.ndarray]:
    """The arrays, if they are those of the inputs."""
    wanted = {spec.name for spec in inputs}
    if set(found) != wanted:
        have = ", ".join(_shown(found)) or "none"
        raise _wrong(path, f"its arrays are {have}, the model's inputs are {', '.join(_shown(wanted))}")
    return found


def _shown(names: Sequence[str] | Mapping[str, object] | set[str]) -> Iterator[str]:
    listed = sorted(names)
    yield from (printable(name, 60) for name in listed[:12])
    if len(listed) > 12:
        yield f"{len(listed) - 12} more"


def _checked(path: Path, spec: TensorSpec, value: np.ndarray) -> np.ndarray:
    name = printable(spec.name, 60)
    if value.shape != spec.shape or value.dtype.name != spec.dtype:
        raise _wrong(
            path,
            f"{name} is {value.dtype}{list(value.shape)}, the model takes {spec.dtype}{list(spec.shape)}",
        )
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise _wrong(path, f"{name} has values that are not finite: take those samples out")
    return np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="), copy=False))


def _wrong(path: Path, reason: str) -> UserError:
    return UserError(f"--calibration {printable(path)}: {reason}")
