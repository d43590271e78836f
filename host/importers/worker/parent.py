"""Model files are of unknown origin: they are read in a worker that can be lost, and this is its parent."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from device_agent.contract.text import printable
from host.engines import unavailable
from host.errors import EdgeError, EngineError, ModelFileError
from host.importers.onnx.mapped_weights import split_file
from host.importers.worker.arrays_file import write_arrays
from host.language_file import ENCODER, is_language_model
from host.model import ImportedModel
from host.model_file import ULTRALYTICS, detect_format
from host.sandbox import Limits, Outcome, Unforeseen, Worker, WorkerLost, forked, scratch_folder

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

Notice = Callable[[str], None]
Meanwhile = Callable[[], object]


def load(
    path: Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    golden_cases: int = 3,
    samples: Sequence[Sequence[np.ndarray]] | None = None,
    *,
    half: str = "",
    values: Mapping[str, Sequence[float]] | None = None,
    notice: Notice = lambda line: None,
    worker: Worker | None = None,
    meanwhile: Meanwhile = lambda: None,
) -> ImportedModel:
    """Read a model file in a worker that can do no harm.

    Args:
        path: an ONNX, torch.export or TFLite file.
        shapes: shape by input name, for inputs whose dimensions the file leaves open.
        seed: of the golden inputs.
        golden_cases: number of golden cases.
        samples: inputs to use for golden cases instead of drawn ones, one sequence of arrays per case.
        half: type of half precision whose spread the golden cases get, "" for none.
        values: numbers of inputs that are fixed, by name: the model no longer has them. ONNX only.
        notice: receives what this machine's kernel lacks to confine the worker.
        worker: of `start_ahead` for this file; one is started if None.
        meanwhile: called while the worker is at work, once TVM is loaded here.

    Returns:
        The model; its `module` is None, with a reason, if only the original runtime can run it.

    Raises:
        ModelFileError: missing, empty, truncated, not a model, or more work than a file of its size may make.
        ShapeError: a dimension stays open, or a given shape or value does not fit.
        EngineError: the original runtime cannot run it.
    """
    path = Path(path)
    detect_format(path)
    with worker or open_worker(path) as worker:
        given = None
        if samples is not None:
            index = iter(write_arrays(worker.scratch / "samples.bin", [a for case in samples for a in case]))
            given = [[next(index) for _ in case] for case in samples]
        request = {
            "path": str(path.absolute()),
            "shapes": {name: [int(size) for size in shape] for name, shape in (shapes or {}).items()},
            "seed": seed,
            "golden_cases": golden_cases,
            "samples": given,
            "half": half,
            "values": {name: list(numbers) for name, numbers in (values or {}).items()},
        }
        answer = ask(worker, path, "host.importers.worker.child:read", request, notice, meanwhile)
        from host.importers.worker.transfer import unpack

        return unpack(answer, worker.scratch, path)


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
    if kind == "pt2" and (reason := unavailable("torch")):
        raise EngineError(f"{path}: {reason}: pip install 'edgetlm[torch]'")
    files = files_of(path)
    first = _PT2_LIBRARIES if kind == "pt2" else ("host.execution.without_torch",)
    return Worker(files, replace(limits_for(files), calls=calls), (*first, "host.importers.worker.child"))


@contextlib.contextmanager
def start_ahead(
    path: Path, shapes: Mapping[str, Sequence[object]] | None = None, quantised: bool = False
) -> Iterator[Worker | None]:
    """A worker for a file that is going to be read: it loads its libraries while this process loads its own.

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
    with worker or contextlib.nullcontext():
        yield worker


def ask(
    worker: Worker,
    path: Path,
    function: str,
    request: dict[str, Any],
    notice: Notice = lambda line: None,
    meanwhile: Meanwhile = lambda: None,
) -> Any:
    """The answer of an import's worker; TVM is loaded here meanwhile, which takes as long as there.

    Args:
        worker: for the file.
        path: of the file.
        function: of the worker, as `module:name`.
        request: its arguments.
        notice: receives what this machine's kernel lacks to confine the worker.
        meanwhile: called while the worker is at work, once TVM is loaded.

    Raises:
        ModelFileError: the worker was lost, or met an unexpected error.
        EdgeError: the worker's own.
    """

    def while_it_works() -> None:
        importlib.import_module("tvm.relax")
        meanwhile()

    try:
        return worker.call(function, request, while_it_works)
    except (WorkerLost, Unforeseen) as error:
        raise ModelFileError(explained(path, error)) from error
    finally:
        for line in worker.missing:
            notice(f"{path.name} is read with fewer guards: {line}")


def keep_made(made: Path, kept: Path) -> None:
    """Copy a file that a worker wrote to its place, whole or not at all.

    Args:
        made: in the worker's scratch folder, where the worker may have put anything, such as a link to
            another file of this user.
        kept: its place.

    Raises:
        ModelFileError: there is no plain file.
    """
    nothing = f"{kept.name}: its export left no file: export the model again"
    try:
        descriptor = os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ModelFileError(nothing) from error
    # Another command may make the same file now.
    with os.fdopen(descriptor, "rb") as stream, TemporaryDirectory(prefix=".", dir=kept.parent) as scratch:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ModelFileError(nothing)
        partial = Path(scratch) / kept.name
        with partial.open("wb") as target:
            shutil.copyfileobj(stream, target)
        partial.rename(kept)


def explained(path: Path, error: WorkerLost | Unforeseen) -> str:
    """One line about a worker that gave no model."""
    size = f"{sum(file.stat().st_size for file in files_of(path) if file.is_file()) / 1e6:.1f} MB"
    if isinstance(error, Unforeseen):
        return f"{path}: the file cannot be read ({printable(error, 200)}): export the model again"
    if error.kind == "crash":
        return f"{path}: the file cannot be read: {error}: export the model again"
    return (
        f"{path}: {error}, too much for a file of {size}: export the model again with simpler loops and "
        "functions and smaller constants"
    )


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


def try_import(
    path: Path, shapes: Mapping[str, Sequence[int]] | None = None, limits: Limits | None = None
) -> Outcome:
    """Import a file in a forked and confined child: how it ended, and what memory and time it took.

    For many files in a row, such as mutated ones: the libraries are loaded once, in this process. It should
    have imported `host.importers.worker.child` and have no busy threads. The original runtime runs in its own
    process below the child.
    """
    with scratch_folder() as scratch:
        request = {
            "path": str(path.absolute()),
            "shapes": {name: list(shape) for name, shape in (shapes or {}).items()},
            "seed": 0,
            "golden_cases": 1,
            "samples": None,
            "half": "",
        }
        files = files_of(path)
        return forked(
            "host.importers.worker.child:read", request, files, scratch, limits or limits_for(files)
        )
