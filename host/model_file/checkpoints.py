"""Checkpoints of Ultralytics: how they are told from other pickles, and what is needed to export one."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from host.errors import ModelFileError

# The format of such a checkpoint, by `detect_format`, and the package that exports it.
ULTRALYTICS = "ultralytics"
# Of a pickle that is searched: its classes come early.
_PICKLE_BYTES = 1 << 20


def names_ultralytics(path: Path, names: Sequence[str]) -> bool:
    """Whether the pickle of an archive names classes of Ultralytics; the pickle is searched, not read.

    Args:
        path: of the archive.
        names: of its entries; one of them ends in data.pkl.
    """
    entry = next(name for name in names if name.rpartition("/")[2] == "data.pkl")
    try:
        with zipfile.ZipFile(path) as archive, archive.open(entry) as stream:
            return ULTRALYTICS.encode() in stream.read(_PICKLE_BYTES)
    # A pickle that cannot be unpacked is refused all the same, as one of torch.save. NotImplementedError: an
    # entry that is compressed in a way that zipfile does not read. RuntimeError: one with a password.
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError):
        return False


def require_exporter(path: Path) -> None:
    """Refuse a checkpoint of Ultralytics where their package is not installed.

    Raises:
        ModelFileError: says what to install, and how to export the checkpoint by hand.
    """
    if find_spec(ULTRALYTICS) is None:
        raise ModelFileError(
            f"{path} is a model of Ultralytics, and their exporter is not installed: pip install "
            f"ultralytics; or, if you trust the file, type yolo export model={path.name} format=onnx "
            f"elsewhere and give {path.stem}.onnx"
        )
