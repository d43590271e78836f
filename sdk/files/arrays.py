"""Arrays by name, in files."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from host.errors import ModelFileError

if TYPE_CHECKING:
    import numpy as np


def read_arrays(path: Path) -> dict[str, np.ndarray] | np.ndarray:
    """Arrays by name from a `.npz` file, or the array of a `.npy` file for a model with one input.

    Raises:
        ModelFileError: missing or no such file.
    """
    if not path.exists():
        raise ModelFileError(
            f"{path}: no such file: give a .npz file with the arrays by name, or a .npy file of the only one"
        )
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder: give a .npz or .npy file, as numpy.savez writes it")
    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise ModelFileError(
            f"{path} is no .npz or .npy file of plain arrays: write it with numpy.savez"
        ) from error


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
