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


def run_reference(
    engine: str,
    path: Path,
    inputs: Sequence[Sequence[np.ndarray]],
    *,
    threads: int = 1,
    time_limit_s: float = 600.0,
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
    path = path.resolve()
    reason = unavailable(engine)
    if reason is not None:
        raise EngineError(f"{path.name}: cannot make reference outputs: {reason}")
    with tempfile.TemporaryDirectory(prefix="edgetlm-reference-") as directory:
        files = [Path(directory, name) for name in ("inputs.npz", "outputs.npz", "error.json")]
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
        arguments = [engine, str(path), str(len(inputs)), str(threads), *(str(file) for file in files)]
        _run_apart(path, [*arguments, *(["as-written"] if as_written else [])], time_limit_s)
        return _unpack(files[1], len(inputs))


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
        raise EngineError(
            f"{path.name}: {engines()[engine].title} gave no outputs within {time_limit_s:.0f} s"
        ) from None
    if result.returncode != 0:
        raise EngineError(f"{path.name}: {_failure(engine, path, result, error_file)}")


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
