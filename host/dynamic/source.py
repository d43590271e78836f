"""A model file read once, by a worker, and converted at as many lengths as are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.dynamic.request import Dimension
from host.errors import ModelFileError, UserError
from host.importers.assemble import content_hash
from host.importers.pins import DeclaredInput
from host.importers.worker.ahead import open_worker
from host.importers.worker.parent import ask
from host.importers.worker.transfer import kept, unpack_golden, unpack_module
from host.model import GoldenCase
from host.model_file import detect_format
from host.sandbox import Worker

if TYPE_CHECKING:
    import tvm

# What one worker is asked at most: the declarations, golden cases, and modules of single lengths.
_CALLS = 64


@dataclass(frozen=True, eq=False)
class Source:
    """An open model file.

    Attributes:
        name: file name without suffix.
        format: "onnx".
        path: the file; its own runtime takes it at any length.
        inputs: as declared.
        outputs: names.
        files: what the content hash covers.
        worker: the process that has read it; it ends with this object.
        original: the file as it was given.
    """

    name: str
    format: str
    path: Path
    inputs: tuple[DeclaredInput, ...]
    outputs: tuple[str, ...]
    files: tuple[Path, ...]
    worker: Worker
    original: Path

    def hash_of(self, dimension: Dimension) -> str:
        """SHA-256 of the file and the range."""
        ends = {
            f"{name}@{end}": dimension.shapes_at(end)[name]
            for name in dimension.shapes
            for end in (dimension.low, dimension.high)
        }
        return content_hash(self.files, ends)

    def module_at(self, shapes: dict[str, tuple[int, ...]]) -> tvm.IRModule:
        """The relax module at given shapes.

        Raises:
            ImportFailed: the compiler cannot express it.
        """
        request = {"path": str(self.original), "shapes": _listed(shapes)}
        answer = ask(self.worker, self.original, "host.dynamic.work:module_at", request)
        return unpack_module(answer, self.worker.scratch)

    def golden(self, dimension: Dimension, lengths: Sequence[int], seed: int) -> tuple[GoldenCase, ...]:
        """One golden case at each length, from the original runtime.

        Raises:
            EngineError: it cannot run the model at these lengths, or gives nothing finite.
        """
        request = {
            "path": str(self.original),
            "runnable": str(self.original),
            "shapes": [_listed(dimension.shapes_at(length)) for length in lengths],
            "seed": seed,
        }
        answer = ask(self.worker, self.original, "host.dynamic.work:golden", request)
        return unpack_golden(answer, self.worker.scratch)


def open_source(path: Path, notice: Callable[[str], None] = lambda line: None) -> Source:
    """Read a model file whose dimensions are open.

    Args:
        path: an ONNX file.
        notice: receives what this machine's kernel lacks to confine the worker.

    Raises:
        ModelFileError: not a model.
        UserError: a format whose files have no open dimensions.
    """
    kind = detect_format(path)
    if kind != "onnx":
        raise UserError(
            f"{path.name}: a range in --shape needs an ONNX file with an open dimension, this is a {kind} "
            "file: export the model to ONNX, or give one length"
        )
    original = path.absolute()
    worker = open_worker(original, _CALLS)
    answer = ask(worker, original, "host.dynamic.work:describe", {"path": str(original)}, notice)
    try:
        files = tuple(Path(file) for file in answer["files"])
        if not all(file.resolve().is_relative_to(original.resolve().parent) for file in files):
            raise ValueError
        return Source(
            name=path.stem,
            format="onnx",
            path=kept(Path(answer["path"]), worker.scratch, original, content_hash(files, {})),
            inputs=tuple(_declared(entry) for entry in answer["inputs"]),
            outputs=tuple(str(name) for name in answer["outputs"]),
            files=files,
            worker=worker,
            original=original,
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ModelFileError(f"{path}: the answer of the import is damaged: import it again") from error


def _declared(entry: Any) -> DeclaredInput:
    name, dimensions, dtype = entry
    sizes = None if dimensions is None else tuple(s if type(s) is int else str(s) for s in dimensions)
    return DeclaredInput(str(name), sizes, str(dtype))


def _listed(shapes: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    return {name: list(shape) for name, shape in shapes.items()}
