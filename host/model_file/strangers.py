"""Files that are mistaken for models: what each is, and what makes a model of it."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from host.errors import ModelFileError

_LFS = b"version https://git-lfs.github.com/spec/"
# An archive of torch.export has one of these; one of torch.save has neither.
_EXPORTED = ("serialized_exported_program.json", "models/model.json")
_LARGEST_ARCHIVE = 100_000
_EXPORT = (
    "in Python: import torch; model = YourModel(); {load}model.eval(); "
    "torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 224, 224),)), {target!r}) "
    "with a tensor of your input's shape"
)


def refuse_stranger(path: Path, head: bytes) -> None:
    """Refuse a file that is known not to be a model, with the next step.

    Args:
        path: of the file.
        head: its first bytes.

    Raises:
        ModelFileError: a pointer of Git LFS, weights without a model, or a TorchScript archive.
    """
    if head.startswith(_LFS):
        raise ModelFileError(
            f"{path} is a pointer of Git LFS, not the file itself: fetch it with git lfs pull"
        )
    if head[:2] == b"\x80\x02" and path.suffix.lower() in (".pt", ".pth", ".bin", ".ckpt"):
        raise ModelFileError(
            f"{path} is a pickle of an old torch.save, without the model's code: {_steps(path, True)}"
        )
    if path.suffix.lower() == ".safetensors":
        raise ModelFileError(f"{path} holds weights (safetensors), not the model: {_steps(path, True)}")
    if head[:4] == b"PK\x03\x04" and zipfile.is_zipfile(path):
        _refuse_archive(path)


def _refuse_archive(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()[:_LARGEST_ARCHIVE]
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return
    if any(name.endswith(end) for name in names for end in _EXPORTED):
        return
    if _has(names, "constants.pkl") and any("/code/" in name for name in names):
        raise ModelFileError(
            f"{path} is a TorchScript archive, which torch.export does not read: "
            f"export the model's own module, {_steps(path, False)}"
        )
    if _has(names, "data.pkl"):
        raise ModelFileError(
            f"{path} is what torch.save writes (a state dict or a pickled module), not an exported model: "
            f"{_steps(path, True)}"
        )


def _has(names: Sequence[str], file: str) -> bool:
    return any(name.rpartition("/")[2] == file for name in names)


def _steps(path: Path, weights: bool) -> str:
    load = f"model.load_state_dict(torch.load({path.name!r}, weights_only=True)); " if weights else ""
    if path.suffix.lower() == ".safetensors":
        load = f"model.load_state_dict(safetensors.torch.load_file({path.name!r})); "
    return _EXPORT.format(load=load, target=f"{path.stem}.pt2")
