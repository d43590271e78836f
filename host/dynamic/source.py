"""A model file read once, converted at as many lengths as are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from host.dynamic.request import Dimension
from host.engines import engine_for_format, run_reference
from host.errors import EngineError, UserError
from host.importers import detect_format
from host.importers.assemble import content_hash, work_file
from host.importers.draws import STYLES, InputRange, draw
from host.importers.onnx_convert import convert_graph
from host.importers.onnx_file import OnnxFile, read_onnx, write_pinned
from host.importers.onnx_operators import supported_operators
from host.importers.onnx_ranges import input_ranges
from host.importers.onnx_simplify import simplify
from host.importers.pins import DeclaredInput
from host.importers.tidy import tidy
from host.model import GoldenCase, TensorSpec

if TYPE_CHECKING:
    import tvm

    from host.importers.golden import Reference


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
        module_at: the relax module at given shapes.
        ranges_at: what the inputs may be at given shapes.
    """

    name: str
    format: str
    path: Path
    inputs: tuple[DeclaredInput, ...]
    outputs: tuple[str, ...]
    files: tuple[Path, ...]
    module_at: Callable[[dict[str, tuple[int, ...]]], tvm.IRModule]
    ranges_at: Callable[[dict[str, tuple[int, ...]]], Sequence[InputRange]]

    def hash_of(self, dimension: Dimension) -> str:
        """SHA-256 of the file and the range."""
        ends = {
            f"{name}@{end}": dimension.shapes_at(end)[name]
            for name in dimension.shapes
            for end in (dimension.low, dimension.high)
        }
        return content_hash(self.files, ends)

    def golden(
        self,
        dimension: Dimension,
        lengths: Sequence[int],
        seed: int,
        reference: Reference = run_reference,
    ) -> tuple[GoldenCase, ...]:
        """One golden case at each length, from the original runtime.

        Raises:
            EngineError: it cannot run the model at these lengths, or gives nothing finite.
        """
        engine = engine_for_format(self.format).name
        ranges = [self.ranges_at(dimension.shapes_at(length)) for length in lengths]
        failure: EngineError | None = None
        for attempt, style in enumerate(STYLES):
            generator = np.random.default_rng([seed, attempt])
            inputs = [draw(one, style, generator) for one in ranges]
            try:
                outputs = reference(engine, self.path, inputs)
            except EngineError as error:
                failure = failure or error
                continue
            if all(_finite(value) for case in outputs for value in case):
                return tuple(GoldenCase(a, tuple(b)) for a, b in zip(inputs, outputs, strict=True))
        raise failure or EngineError(f"{self.path.name}: {engine} gave no finite outputs")


def open_source(path: Path) -> Source:
    """Read a model file whose dimensions are open.

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
    file = read_onnx(path)

    def simple(shapes: dict[str, tuple[int, ...]]):  # type: ignore[no-untyped-def]
        return simplify(file, shapes, supported_operators())

    def ranges(shapes: dict[str, tuple[int, ...]]) -> Sequence[InputRange]:
        specs = tuple(TensorSpec(entry.name, shapes[entry.name], entry.dtype) for entry in file.inputs)
        return input_ranges(simple(shapes), file.weights, specs)

    return Source(
        name=path.stem,
        format="onnx",
        path=_whole_file(path, file),
        inputs=file.inputs,
        outputs=tuple(value.name for value in file.model.graph.output),
        files=file.files,
        module_at=lambda shapes: tidy(convert_graph(simple(shapes), dict(file.weights))),
        ranges_at=ranges,
    )


def _whole_file(path: Path, file: OnnxFile) -> Path:
    """The file itself, or a copy with the weights that lie beside it."""
    if not file.external:
        return path.resolve()
    target = work_file(content_hash(file.files, {}), path.name)
    if not target.is_file():
        partial = target.with_name(f"partial-{target.name}")
        write_pinned(path, {}, partial)
        partial.rename(target)
    return target


def _finite(values: np.ndarray) -> bool:
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())
