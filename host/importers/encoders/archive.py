"""The parent's side: the archive of a folder, made once and kept by content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from host.engines import unavailable
from host.errors import EngineError, ModelFileError
from host.importers.assemble import content_hash, work_file
from host.importers.worker.ahead import limits_for
from host.importers.worker.parent import ask, keep_made
from host.language_file import CONFIG
from host.sandbox import Worker

_SUFFIXES = (".json", ".safetensors")
_FILES = 4096
# transformers and torch are loaded before the first byte is read.
_CPU_S = 120.0


def exported_folder(
    folder: Path,
    shapes: Mapping[str, Sequence[int]],
    notice: Callable[[str], None] = lambda line: None,
    name: str = "",
) -> Path:
    """A `.pt2` file of a folder of transformers with an encoder or a vision model.

    Args:
        folder: with config.json and *.safetensors.
        shapes: shape by input name, or one size by the name of a dimension (batch, sequence, height, ...).
        notice: gets a line about the sizes, and about what is left out.
        name: of the model; the folder's if "".

    Raises:
        ModelFileError: the folder is not whole, or its class is none of transformers.
        ImportFailed: the model cannot be captured, or takes inputs of an unknown kind.
        ShapeError: a shape does not fit.
        EngineError: PyTorch or transformers is not installed.
    """
    reason = unavailable("torch")
    if reason is None and find_spec("transformers") is None:
        reason = "transformers is not installed"
    if reason is not None:
        raise EngineError(f"{folder}: {reason}: pip install 'edgetlm[torch]'")
    files = _files_of(folder)
    wanted = {name: [int(size) for size in shape] for name, shape in shapes.items()}
    title = name or folder.resolve().name
    kept = work_file(content_hash(files, wanted), f"{title}.pt2")
    if kept.is_file():
        return kept
    limits = limits_for(files)
    cpu_s = _CPU_S + limits.cpu_s
    limits = replace(limits, cpu_s=cpu_s, time_s=limits.time_s + 4 * _CPU_S)
    links = sorted({file.resolve() for file in files})
    with Worker([folder.resolve(), *links], limits, ("host.importers.encoders.child",)) as worker:
        target = worker.scratch / "exported.pt2"
        request = {"folder": str(folder.resolve()), "target": str(target), "shapes": wanted}
        answer = ask(worker, folder, "host.importers.encoders.child:export", request, notice)
        inputs = ", ".join(f"{name} {list(shape)}" for name, shape in answer["inputs"].items())
        part = "the encoder alone, with " if answer["part"] else ""
        notice(f"{title} is exported: {part}{inputs}; --shape gives other sizes")
        keep_made(target, kept)
    return kept


def _files_of(folder: Path) -> list[Path]:
    """What the model is made of: configuration and weights; a link may lead to a cache of downloads."""
    files = sorted(one for one in folder.iterdir() if one.suffix in _SUFFIXES and one.is_file())
    if not (folder / CONFIG).is_file() or len(files) > _FILES:
        raise ModelFileError(f"{folder}: give a folder with {CONFIG} and *.safetensors")
    return files
