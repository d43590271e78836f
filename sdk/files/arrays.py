"""Arrays by name, in files."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from device_agent.contract.limits import LIMITS
from device_agent.contract.text import printable
from host.errors import ModelFileError

if TYPE_CHECKING:
    import numpy as np


def read_arrays(path: Path) -> dict[str, np.ndarray] | np.ndarray:
    """Arrays by name from a `.npz` file, or the array of a `.npy` file for a model with one input.

    Raises:
        ModelFileError: missing, no such file, damaged, or with more bytes than a device takes.
    """
    if not path.exists():
        raise ModelFileError(
            f"{path}: no such file: give a .npz file with the arrays by name, or a .npy file of the only one"
        )
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder: give a .npz or .npy file, as numpy.savez writes it")
    import numpy as np

    from host.bundle.archive import DAMAGED_ARRAYS

    try:
        if zipfile.is_zipfile(path):
            _refuse_large(path)
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found as archive:
            arrays = {name: archive[name] for name in archive.files}
    except DAMAGED_ARRAYS as error:
        raise _no_arrays(path) from error
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise _no_arrays(path)
    return arrays


def _no_arrays(path: Path) -> ModelFileError:
    return ModelFileError(
        f"{printable(path)} is no whole .npz or .npy file of plain arrays: write it with numpy.savez"
    )


def _refuse_large(path: Path) -> None:
    """Refuse an archive that says to hold more than a device takes: a small one may unpack to any size."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    most = LIMITS.wire.blob_bytes
    if size > most:
        raise ModelFileError(
            f"{printable(path)} unpacks to {size / 1e9:.1f} GB, and a device takes {most / 1e9:.1f} GB of "
            "inputs: give the arrays of one run"
        )


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as a `.npz` file, whole or not at all.

    Elements of a type that NumPy lacks are written as their bytes.

    Raises:
        DeviceFull: no space left.
    """
    import numpy as np

    from device_agent.contract.tensors import without_type
    from host.files import writing, written_whole

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path), written_whole(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **{name: without_type(array) for name, array in arrays.items()})
