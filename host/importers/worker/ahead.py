"""Starts the worker that reads a model file, before this process loads the libraries that it needs itself."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from host.errors import EdgeError, EngineError, ModelFileError
from host.importers.onnx.mapped_weights import split_file
from host.language_file import ENCODER, is_language_model
from host.model_file import ULTRALYTICS, detect_format
from host.sandbox import Limits, Worker

# Of any file, and what each byte of a large one adds: weights are in memory several times on their way.
_MEMORY_BYTES, _MEMORY_PER_BYTE = 3_800_000_000, 12
_CPU_S, _CPU_S_PER_MB = 24.0, 1.0
# A busy machine gives a worker a part of its time.
_WAITING = 4.0
_FILES = 4096
# Loaded before the limits begin. `torch.export` itself imports most of what it needs when it is called, SymPy
# among it: these are the modules that it then imports, in PyTorch 2.13.
_PT2_LIBRARIES = (
    "torch",
    "torch._export.serde.serialize",
    "torch.export._trace",
    "torch.export.pt2_archive._package",
    "host.importers.torch.importer",
)


@contextlib.contextmanager
def start_ahead(
    path: Path, shapes: Mapping[str, Sequence[object]] | None = None, quantised: bool = False
) -> Iterator[Worker | None]:
    """A worker for a file that is going to be read: it loads its libraries while this process loads its own.

    The collector of cycles leaves these libraries, and all else that is there then, out until the end of this
    context; not where the caller has objects left out already.

    Args:
        path: the model file.
        shapes: that it is going to be read with.
        quantised: whether another file is made of it, and that is read.

    Yields:
        The worker. None where the file is not fit to be read (the importer says why), where another file
        is, and for a range of lengths, which has a worker of its own.
    """
    ranged = any(not isinstance(size, int) for shape in (shapes or {}).values() for size in shape)
    worker = None
    if not ranged and not quantised:
        with contextlib.suppress(EdgeError, OSError):
            worker = open_worker(path)
    own = not gc.get_freeze_count()
    with worker or contextlib.nullcontext():
        try:
            yield worker
        finally:
            if own:
                gc.unfreeze()


def open_worker(path: Path, calls: int = 1) -> Worker:
    """A worker that may read a model file and the files that this names.

    Args:
        path: the model file.
        calls: how often it is asked at most.

    Raises:
        ModelFileError: not a model file, or a language model, which `decoders` reads.
        EngineError: it needs PyTorch, which is not installed.
    """
    kind = detect_format(path)
    if is_language_model(kind):
        raise ModelFileError(f"{path} is a language model: give --context, the tokens that it holds")
    if kind == ENCODER:
        raise ModelFileError(f"{path} is a folder: host.importers.encoders exports it")
    if kind == ULTRALYTICS:
        raise ModelFileError(f"{path} is a checkpoint: host.importers.ultralytics exports it")
    if kind == "pt2":
        from host.engines import unavailable

        if reason := unavailable("torch"):
            raise EngineError(f"{path}: {reason}: pip install 'edgetlm[torch]'")
    files = files_of(path)
    first = _PT2_LIBRARIES if kind == "pt2" else ("host.execution.without_torch",)
    return Worker(files, replace(limits_for(files), calls=calls), (*first, "host.importers.worker.child"))


def limits_for(files: Sequence[Path]) -> Limits:
    """The limits of a worker that reads files of this size."""
    # What is on the disk, so that a file of holes counts for nothing.
    size = sum(min(status.st_size, status.st_blocks * 512) for status in (file.stat() for file in files))
    cpu_s = _CPU_S + _CPU_S_PER_MB * size / 1e6
    memory = _MEMORY_BYTES + _MEMORY_PER_BYTE * size
    return Limits(memory, cpu_s, _WAITING * cpu_s, memory)


def files_of(path: Path) -> list[Path]:
    """A model file, and the files and folders beside it whose names occur in it: its weights are in those."""
    main = path.resolve()
    if detect_format(path) != "onnx":
        return [main]
    beside = [entry for entry in main.parent.iterdir() if entry != main and not entry.name.startswith(".")]
    # Names do not occur among the numbers of large weights, and those are long to search.
    text = split_file(main).skeleton
    named = [entry for entry in sorted(beside)[:_FILES] if entry.name.encode(errors="ignore") in text]
    return [main, *(entry for entry in named if entry.is_file() or entry.is_dir())]
