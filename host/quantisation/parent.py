"""Quantising a model file: the search here, everything that reads the file or the samples in a worker."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from host.errors import ModelFileError, UserError
from host.files import file_hash
from host.importers.assemble import work_file
from host.importers.worker.ahead import files_of, limits_for
from host.importers.worker.arrays_file import take_arrays
from host.importers.worker.parent import Notice, ask
from host.model.quantisation import FrontPoint, OutputError, Quantisation, QuantisedLayer, worst
from host.progress import StageClock
from host.quantisation.search import SearchResult, grouped, least_kept, most_groups, steps
from host.sandbox import Worker

# Seconds of computing of one answer: every sample runs once in the longest of them.
_CPU_S = 1800.0
# Answers of a search: each group alone, the steps and the halvings, and the first and the last.
_CALLS = 256
_MODULE = "host.quantisation.child"


@dataclass(frozen=True, eq=False)
class QuantisedFile:
    """A quantised model as a file.

    Attributes:
        path: of the file, in the cache.
        samples: of the calibration, to verify with.
        result: what was found out.
    """

    path: Path
    samples: tuple[tuple[np.ndarray, ...], ...]
    result: Quantisation


def quantise(
    path: Path,
    shapes: dict[str, tuple[int, ...]],
    calibration: Path,
    bound: float,
    architecture: str,
    clock: StageClock,
) -> QuantisedFile:
    """Quantise the layers of an ONNX model to bytes, but for those that lose too much.

    Args:
        path: the model in floats.
        shapes: by input name, for inputs whose dimensions the file leaves open.
        calibration: samples of the inputs: see `samples.read_samples`.
        bound: the largest rms error of an output, relative to the output in floats.
        architecture: of the target; decides the type of activations.
        clock: counts the stage.

    Raises:
        UserError: the samples do not fit, there is nothing to quantise, or no layer can be within the bound.
        ModelFileError: the file is no usable model.
        EngineError: ONNX Runtime cannot run it.
    """
    with clock.stage("quantise"), _worker(path, calibration) as worker:
        # ONNX Runtime is fastest with bytes without sign on x86 and with signed ones on ARM; ours takes both.
        dtype = "int8" if architecture == "aarch64" else "uint8"
        search = _Search(worker, path, clock, bound)
        made = search.ask(
            "prepare",
            path=str(path.absolute()),
            shapes={name: list(shape) for name, shape in shapes.items()},
            calibration=str(calibration.absolute()),
            activations=dtype,
        )
        result = search.run(made, dtype)
    layers, kept = result.result.layers, result.result.kept
    if kept:
        clock.progress.note(f"{len(kept)} of {len(layers)} layers lose too much and stay in floats")
    return result


def _worker(path: Path, calibration: Path) -> Worker:
    files = files_of(path)
    samples = sorted(calibration.iterdir()) if calibration.is_dir() else [calibration]
    limits = limits_for([one for one in (*files, *samples) if one.is_file()])
    limits = replace(limits, cpu_s=_CPU_S, time_s=4 * _CPU_S, calls=_CALLS)
    return Worker([*files, calibration.resolve()], limits, (_MODULE,))


class _Search:
    """The search over the layers of one model.

    Args:
        worker: that has the model.
        path: of the model, for messages.
        clock: counts the stage; its progress gets the layers that are done.
        bound: of the error.
    """

    def __init__(self, worker: Worker, path: Path, clock: StageClock, bound: float) -> None:
        self._worker, self._path, self._clock, self._bound = worker, path, clock, bound
        self._done = self._total = 0

    def ask(self, function: str, **request: Any) -> Any:
        """The answer of a function of the worker."""
        notice: Notice = self._clock.progress.note if function == "prepare" else lambda line: None
        return ask(self._worker, self._path, f"{_MODULE}:{function}", request, notice)

    def run(self, made: Any, dtype: str) -> QuantisedFile:
        """Find the layers that stay as they are, and take the model over.

        Args:
            made: the answer of `prepare`.
            dtype: of activations.
        """
        try:
            layers = tuple(_layer(entry) for entry in made["layers"])
            groups = grouped(len(layers), most_groups(int(made["bytes"])))
            samples, compared = int(made["samples"]), int(made["compared"])
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(self._path) from error
        # One more of each kind of step than there are halvings, at most.
        self._total = len(groups) + 2 * len(steps(len(groups))) + 1
        alone = [self._error(group, alone=True) for group in groups]
        layers = tuple(
            replace(layers[index], alone=error)
            for group, error in zip(groups, alone, strict=True)
            for index in group
        )
        order = sorted(range(len(groups)), key=lambda number: -alone[number])
        found = least_kept(order, lambda kept: self._error(_without(groups, kept)), self._bound)
        if found is None:
            raise UserError(
                f"{self._path}: no layer can be quantised within --quantize-error {self._bound:g}; the one "
                f"that loses least has {min(alone):.2g} alone: allow more, or leave --quantize out"
            )
        quantised = _without(groups, found.kept)
        layers = tuple(replace(one, quantised=index in quantised) for index, one in enumerate(layers))
        front = _front(found, order, groups, layers)
        answer = self.ask("finish", quantised=quantised)
        self._clock.progress.advance(self._total, self._total)
        return self._taken_over(answer, layers, front, (dtype, samples, compared, len(groups[0])))

    def _error(self, quantised: Sequence[int], alone: bool = False) -> float:
        answer = self.ask("measure", quantised=list(quantised), alone=alone)
        self._done += 1
        self._clock.progress.advance(min(self._done, self._total), self._total)
        return worst(_errors(self._path, answer))

    def _taken_over(
        self,
        answer: Any,
        layers: tuple[QuantisedLayer, ...],
        front: tuple[FrontPoint, ...],
        facts: tuple[str, int, int, int],
    ) -> QuantisedFile:
        """Keep the files that the worker wrote, and its samples in memory."""
        scratch, (dtype, samples, compared, group) = self._worker.scratch, facts
        try:
            arrays = [np.array(one) for one in take_arrays(scratch / "golden.bin", answer["golden"])]
            errors, fully = (_errors(self._path, answer[name]) for name in ("errors", "fully"))
        except (KeyError, TypeError) as error:
            raise _damaged(self._path) from error
        result = Quantisation(
            original=_kept(self._path, scratch / "float.onnx"),
            dtype=dtype,
            samples=samples,
            compared=compared,
            bound=self._bound,
            errors=errors,
            fully=fully,
            layers=layers,
            front=front,
            group=group,
        )
        cases = min(samples, 3)
        each = len(arrays) // cases
        taken = tuple(tuple(arrays[case * each : (case + 1) * each]) for case in range(cases))
        return QuantisedFile(_kept(self._path, scratch / "quantised.onnx"), taken, result)


def _without(groups: Sequence[tuple[int, ...]], kept: Sequence[int]) -> list[int]:
    """Layers of the groups that are not kept in floats."""
    left = set(kept)
    return [index for number, group in enumerate(groups) if number not in left for index in group]


def _front(
    found: SearchResult,
    order: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    layers: Sequence[QuantisedLayer],
) -> tuple[FrontPoint, ...]:
    total = sum(one.multiply_adds for one in layers) or 1
    points = []
    for count, error in found.tried.items():
        kept = [layers[index] for number in order[:count] for index in groups[number]]
        share = sum(one.multiply_adds for one in kept) / total
        points.append(FrontPoint(len(kept), share, error, taken=count == len(found.kept)))
    return tuple(points)


def _kept(path: Path, made: Path) -> Path:
    """A file of the worker in the cache, under the name of the model and by its content."""
    if made.is_symlink() or not made.is_file():
        raise _damaged(path)
    target = work_file(file_hash(made), f"{path.stem}.onnx")
    partial = target.with_name(f"moving-{target.name}")
    shutil.move(made, partial)
    partial.replace(target)
    return target


def _layer(entry: Any) -> QuantisedLayer:
    name, operator, products, weights = entry
    return QuantisedLayer(str(name), str(operator), int(products), int(weights))


def _errors(path: Path, answer: Any) -> tuple[OutputError, ...]:
    """Errors as the worker sent them; None is an infinite one."""
    try:
        return tuple(
            OutputError(
                str(one["name"]),
                math.inf if one["rms"] is None else float(one["rms"]),
                math.inf if one["largest"] is None else float(one["largest"]),
                None if one["cosine"] is None else float(one["cosine"]),
                None if one["agreement"] is None else float(one["agreement"]),
            )
            for one in answer
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> ModelFileError:
    return ModelFileError(f"{path}: the answer of the quantisation is damaged: run it again")
