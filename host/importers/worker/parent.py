"""Model files are of unknown origin: they are read in a worker that can be lost, and this is its parent."""

from __future__ import annotations

import gc
import importlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from device_agent.contract.text import printable
from host.errors import ModelFileError
from host.files import open_plain
from host.importers.worker.ahead import files_of, limits_for, open_worker
from host.importers.worker.arrays_file import write_arrays
from host.model import ImportedModel
from host.model_file import detect_format
from host.sandbox import Limits, Outcome, Unforeseen, Worker, WorkerLost, forked, scratch_folder

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
    ahead = worker is not None
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

        def load_libraries() -> None:
            importlib.import_module("host.importers.worker.transfer")
            meanwhile()
            if ahead and not gc.get_freeze_count():
                # These stay: every search for cycles would go through them in vain.
                gc.freeze()

        answer = ask(worker, path, "host.importers.worker.child:read", request, notice, load_libraries)
        from host.importers.worker.transfer import unpack

        return unpack(answer, worker.scratch, path)


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
        collects = gc.isenabled()
        # Libraries stay: the collector would go through them again and again while they are loaded.
        gc.disable()
        try:
            importlib.import_module("tvm.relax")
            meanwhile()
        finally:
            if collects:
                gc.enable()

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
    try:
        stream = open_plain(made)
    except OSError as error:
        message = f"{kept.name}: its export left no file: export the model again"
        raise ModelFileError(message) from error
    # Another command may make the same file now.
    with stream, TemporaryDirectory(prefix=".", dir=kept.parent) as scratch:
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
