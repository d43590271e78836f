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
# What `device_agent.execute.engines` calls the second way.
_ALSO_AS_WRITTEN = "also-as-written"
_TIME_LIMIT_S = 600.0

Cases = Sequence[Sequence[np.ndarray]]


def run_reference(
    engine: str,
    path: Path,
    inputs: Cases,
    *,
    threads: int = 1,
    time_limit_s: float = _TIME_LIMIT_S,
    as_written: bool = False,
) -> list[list[np.ndarray]]:
    """Outputs of a model for each set of inputs.

    Args:
        engine: name of the engine; it must read the file's format.
        path: the model file.
        inputs: one sequence of arrays per case, in the order of the model's inputs.
        threads: threads that the engine may use.
        time_limit_s: after this the process is killed.
        as_written: without the engine's own rewriting of the model; ONNX Runtime only.

    Returns:
        For each case the outputs in the model's order.

    Raises:
        EngineError: the engine is missing, refused the model, crashed or took too long.
    """
    try:
        return _run(engine, path, inputs, threads, time_limit_s, ("as-written",) if as_written else ())[0]
    except _Ended as error:
        raise EngineError(str(error)) from error


class BothWays:
    """Runs a model file as an engine rewrites it and, in the same process, as it is written.

    To start a process and to load its runtime takes longer than to run most models. The outputs of the second
    way are kept until they are asked for, with the arrays that they were made of.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[str, Path, Cases, list[list[np.ndarray]]]] = []

    def rewritten(self, engine: str, path: Path, inputs: Cases) -> list[list[np.ndarray]]:
        """As `run_reference`, with twice its limit of time for the two ways."""
        try:
            outputs, *written = _run(engine, path, inputs, 1, 2 * _TIME_LIMIT_S, (_ALSO_AS_WRITTEN,))
        except _Ended:
            # Either way may have ended the process.
            return run_reference(engine, path, inputs)
        self._kept += [(engine, path, inputs, one) for one in written]
        return outputs

    def as_written(self, engine: str, path: Path, inputs: Cases) -> list[list[np.ndarray]]:
        """As `run_reference` with `as_written`."""
        for number, (other, place, given, outputs) in enumerate(self._kept):
            if (other, place) == (engine, path) and _same_arrays(given, inputs):
                del self._kept[number]
                return outputs
        return run_reference(engine, path, inputs, as_written=True)


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
) -> list[list[list[np.ndarray]]]:
    """Outputs of all cases in a way, and those as written where they are wanted as well and could be made.

    Raises:
        EngineError: see `run_reference`.
    """
    path = path.resolve()
    reason = unavailable(engine)
    if reason is not None:
        raise EngineError(f"{path.name}: cannot make reference outputs: {reason}")
    with tempfile.TemporaryDirectory(prefix="edgetlm-reference-") as directory:
        names = ("inputs.npz", "outputs.npz", "error.json", "written.npz")
        *files, written = (Path(directory, name) for name in names)
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
        also = _ALSO_AS_WRITTEN in way
        _run_apart(path, [*arguments, *([str(written)] if also else [])], time_limit_s)
        made = [files[1], *([written] if also and written.is_file() else [])]
        return [_unpack(file, len(inputs)) for file in made]


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
