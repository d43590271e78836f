"""Run a model file once in its original runtime, in a process of its own.

The process takes the runtime's memory and spinning threads with it when it ends, and a runtime that
crashes on a broken file takes nobody along.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from device_agent.contract.limits import LIMITS
from device_agent.contract.tensors import with_type, without_type
from device_agent.contract.text import printable
from host.engines.table import engines, unavailable
from host.errors import EngineError

# What ONNX Runtime writes before the reason: the code of the error, and what it was doing.
_PREFIX = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from it failed: ?)?"
    r"(This is an invalid model\. |Invalid model\. )?"
)
# What `device_agent.execute.engines` calls the second way after the first, and beside it.
_ALSO_UNOPTIMISED, _AT_ONCE = "also-unoptimised", "also-unoptimised-at-once"
# With more weights, or more inputs in a case, the two ways are not in memory at the same time. What a model
# computes between its layers is mostly less than a hundred times its inputs.
_LARGE_WEIGHTS_BYTES, _LARGE_INPUTS_BYTES = 128 << 20, 4 << 20
_TIME_LIMIT_S = 600.0

Cases = Sequence[Sequence[np.ndarray]]


def run_reference(
    engine: str,
    path: Path,
    inputs: Cases,
    *,
    threads: int = 1,
    time_limit_s: float = _TIME_LIMIT_S,
    unoptimised: bool = False,
) -> list[list[np.ndarray]]:
    """Outputs of a model for each set of inputs.

    Args:
        engine: name of the engine; it must read the file's format.
        path: the model file.
        inputs: one sequence of arrays per case, in the order of the model's inputs.
        threads: threads that the engine may use.
        time_limit_s: after this the process is killed.
        unoptimised: without the graph optimisations of the engine; ONNX Runtime and LiteRT only.

    Returns:
        For each case the outputs in the model's order.

    Raises:
        EngineError: the engine is missing, refused the model, crashed or took too long.
    """
    way = ("unoptimised",) if unoptimised else ()
    return _run(engine, path, inputs, threads, time_limit_s, way).outputs


class PairedReference:
    """Runs a model file with the graph optimisations of an engine and, in the same process, without them.

    To start a process and to load its runtime takes longer than to run most models. Those that are not large
    run in both ways at once. The first inputs are mostly those that are taken: others run in one way only.
    The outputs of the second way are kept until some are asked for, with the arrays that they were made of.
    """

    def __init__(self) -> None:
        self._first = True
        self._kept: _Kept | None = None

    def optimised(self, engine: str, path: Path, inputs: Cases) -> list[list[np.ndarray]]:
        """As `run_reference`; the first time in both ways, with twice its limit of time for the two."""
        if not self._first:
            return run_reference(engine, path, inputs)
        self._first = False
        at_once = not _is_large(path, inputs)
        try:
            way = _AT_ONCE if at_once else _ALSO_UNOPTIMISED
            made = _run(engine, path, inputs, 1, 2 * _TIME_LIMIT_S, (way,))
        except _Ended:
            if not at_once:
                raise
            # The second way may have ended the process before the first had its outputs, or there was no
            # memory for both: whoever asks for the second one finds out.
            made = _Made(run_reference(engine, path, inputs), None)
        if made.unoptimised is not None:
            self._kept = _Kept(engine, path, inputs, made.unoptimised)
        return made.outputs

    def unoptimised(self, engine: str, path: Path, inputs: Cases) -> list[list[np.ndarray]]:
        """As `run_reference` with `unoptimised`."""
        kept, self._kept = self._kept, None
        if kept is None or kept[:2] != (engine, path) or not _same_arrays(kept.inputs, inputs):
            return run_reference(engine, path, inputs, unoptimised=True)
        if isinstance(kept.outputs, EngineError):
            raise kept.outputs
        return kept.outputs


class _Kept(NamedTuple):
    """What a model file gave without graph optimisations, or how it ended the process, and what was run."""

    engine: str
    path: Path
    inputs: Cases
    outputs: list[list[np.ndarray]] | EngineError


class _Made(NamedTuple):
    """The outputs of all cases in one way, and those without graph optimisations.

    Attributes:
        outputs: of the way that was asked for.
        unoptimised: without graph optimisations, where these are wanted as well; an error where they ended
            the process, None where they could not be made for another reason.
    """

    outputs: list[list[np.ndarray]]
    unoptimised: list[list[np.ndarray]] | EngineError | None


def _is_large(path: Path, inputs: Cases) -> bool:
    """Whether a model may take much memory: by its file, and the weights that lie beside one that is full."""
    beside = path.with_name(f"{path.name}.data")
    weights_bytes = path.stat().st_size + (beside.stat().st_size if beside.is_file() else 0)
    inputs_bytes = max((sum(array.nbytes for array in case) for case in inputs), default=0)
    return weights_bytes > _LARGE_WEIGHTS_BYTES or inputs_bytes > _LARGE_INPUTS_BYTES


def _same_arrays(first: Cases, second: Cases) -> bool:
    """Whether both are the same arrays in memory."""
    if [len(case) for case in first] != [len(case) for case in second]:
        return False
    arrays = zip(chain.from_iterable(first), chain.from_iterable(second), strict=True)
    return all(one is other for one, other in arrays)


class _Ended(EngineError):
    """The process ended without saying why."""


def _run(
    engine: str, path: Path, inputs: Cases, threads: int, time_limit_s: float, way: Sequence[str]
) -> _Made:
    """Outputs of all cases in a way, and those without graph optimisations where they are wanted as well.

    Raises:
        EngineError: see `run_reference`.
    """
    path = path.resolve()
    reason = unavailable(engine)
    if reason is not None:
        raise EngineError(f"{path.name}: cannot make reference outputs: {reason}")
    with tempfile.TemporaryDirectory(prefix="edgetlm-reference-") as directory:
        names = ("inputs.npz", "outputs.npz", "error.json", "unoptimised.npz")
        *files, unoptimised = (Path(directory, name) for name in names)
        flat = {
            f"{case}/{index}": array
            for case, arrays in enumerate(inputs)
            for index, array in enumerate(arrays)
        }
        types = [str(array.dtype) for array in flat.values()]
        if unknown := set(types) - LIMITS.item_bytes.keys():
            raise EngineError(
                f"{path.name}: an input holds elements of type {printable(min(unknown), 40)}, none of "
                f"{', '.join(LIMITS.item_bytes)}: give it another type in the model, with a cast behind it"
            )
        arrays = {name: without_type(array) for name, array in flat.items()}
        np.savez(files[0], types=np.array(types, dtype=str), **arrays)
        arguments = [engine, str(path), str(len(inputs)), str(threads), *(str(file) for file in files), *way]
        also = way[:1] in ((_ALSO_UNOPTIMISED,), (_AT_ONCE,))
        ended: EngineError | None = None
        try:
            _run_apart(path, [*arguments, *([str(unoptimised)] if also else [])], time_limit_s)
        except _Ended as error:
            # The second way ended the process where the outputs of the first are there.
            if not also or not files[1].is_file():
                raise
            ended = error
        outputs = _unpack(files[1], len(inputs))
        if ended is None and also and unoptimised.is_file():
            return _Made(outputs, _unpack(unoptimised, len(inputs)))
        return _Made(outputs, ended)


def _run_apart(path: Path, arguments: Sequence[str], time_limit_s: float) -> None:
    """Run `device_agent.execute.engines` with these arguments in a process of its own.

    Raises:
        EngineError: it has no outputs.
    """
    engine, error_file = arguments[0], Path(arguments[6])
    try:
        result = subprocess.run(
            [sys.executable, "-m", "device_agent.execute.engines", *arguments],
            cwd=str(Path(__file__).resolve().parents[2]),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=time_limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _Ended(
            f"{path.name}: {engines()[engine].title} gave no outputs within {time_limit_s:.0f} s"
        ) from None
    if result.returncode != 0:
        kind = EngineError if error_file.is_file() else _Ended
        raise kind(f"{path.name}: {_failure(engine, path, result, error_file)}")


def _failure(engine: str, path: Path, result: subprocess.CompletedProcess[str], error_file: Path) -> str:
    """One line about why the process ended without outputs."""
    if error_file.is_file():
        message = str(json.loads(error_file.read_text())["message"])
        line = _PREFIX.sub("", " ".join(message.replace(str(path), "it").split()))
        # What the model's own runtime refuses is no fault of the device.
        refused = line.startswith(f"{engine} cannot load it")
        return f"{line.rstrip('.')}: export the model again" if refused else line
    title = engines()[engine].title
    if result.returncode < 0:
        return f"{title} crashed on it ({signal.Signals(-result.returncode).name})"
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return f"{title} ended with code {result.returncode}: {lines[-1] if lines else 'no message'}"


def _unpack(path: Path, cases: int) -> list[list[np.ndarray]]:
    with np.load(path) as archive:
        counts = archive["counts"]
        types = iter(archive["types"].tolist())
        return [
            [with_type(archive[f"{case}/{index}"], next(types)) for index in range(int(counts[case]))]
            for case in range(cases)
        ]
