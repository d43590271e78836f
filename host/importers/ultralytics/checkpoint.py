"""The parent's side: the ONNX file of a checkpoint, made once and kept by content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.importers.assemble import content_hash, work_file
from host.importers.worker.ahead import limits_for
from host.importers.worker.parent import ask, keep_made
from host.model_file import ULTRALYTICS, detect_format
from host.sandbox import Worker

_CHILD = "host.importers.ultralytics.child"
# Ultralytics and torch are loaded before the first byte is read.
_CPU_S = 120.0


def exported_checkpoint(
    path: Path,
    shapes: Mapping[str, Sequence[int]],
    notice: Callable[[str], None] = lambda line: None,
    name: str = "",
) -> Path:
    """An ONNX file of a checkpoint, which is to be imported like any other file of unknown origin.

    Args:
        path: of the checkpoint.
        shapes: {"images": (batch, channels, height, width)}, or sizes by the names batch, height and width.
        notice: gets a line before code of the pickle runs, and one about the sizes.
        name: of the model; the file's if "".

    Raises:
        ModelFileError: the kernel cannot confine the worker, their exporter refuses the checkpoint, or what
            it left is no ONNX file.
        ShapeError: a size does not fit the model.
        EngineError: their package cannot be imported in the worker.
    """
    wanted = {name: [int(size) for size in shape] for name, shape in shapes.items()}
    title = name or path.stem
    release = _release()
    kept = work_file(content_hash([path], {**wanted, f"{ULTRALYTICS} {release}": []}), f"{title}.onnx")
    if kept.is_file():
        return kept
    limits = limits_for([path])
    cpu_s = _CPU_S + limits.cpu_s
    limits = replace(limits, cpu_s=cpu_s, time_s=limits.time_s + 4 * _CPU_S, calls=2)
    with Worker([path.resolve()], limits, (_CHILD,)) as worker:
        # Nothing of the file is read before it is known what confines the worker.
        ask(worker, path, f"{_CHILD}:load_package", {}, notice)
        if worker.missing:
            raise ModelFileError(
                f"{path} is a pickle, whose code runs as it is read, and this machine cannot confine it "
                f"({worker.missing[0]}): if you trust the file, type yolo export model={path.name} "
                f"format=onnx and give {path.stem}.onnx"
            )
        notice(
            f"{path.name} is a pickle: its code runs in the export's process, which has no network and reads "
            "none of your other files"
        )
        target = worker.scratch / "exported.onnx"
        request = {"path": str(path.resolve()), "target": str(target), "shapes": wanted}
        shape = _checked(path, ask(worker, path, f"{_CHILD}:export", request, notice))
        keep_made(target, kept)
    if not _is_onnx(kept):
        kept.unlink()
        raise ModelFileError(f"{path}: what its export left is no ONNX file: export it by hand")
    notice(
        f"{title} is exported by Ultralytics {release}: images {shape}; --shape height=N, width=N and "
        "batch=N give other sizes"
    )
    return kept


def _is_onnx(path: Path) -> bool:
    try:
        return detect_format(path) == "onnx"
    except ModelFileError:
        return False


def _checked(path: Path, answer: Any) -> list[int]:
    """The shape in a worker's answer, which code of the pickle may have written."""
    if not (isinstance(answer, list) and len(answer) == 4 and all(type(size) is int for size in answer)):
        raise ModelFileError(f"{path}: the answer of the export is damaged: export it by hand")
    return answer


def _release() -> str:
    """The version of their package: another one may export the same checkpoint in another way."""
    try:
        return printable(version(ULTRALYTICS), 60)
    except PackageNotFoundError:
        return "of unknown version"
