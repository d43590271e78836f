"""An import in a child, as `host.importers.worker.child` does it, but for the original runtime.

That is forked from this process too, where its libraries are loaded, instead of started: ten times as fast.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.contract.tensors import without_type
from device_agent.execute.engines import litert_engine, onnxruntime_engine, torch_engine
from device_agent.execute.engines.__main__ import main
from host.engines import reference
from host.errors import EngineError
from host.importers.dispatch import load_here
from host.importers.worker.transfer import pack
from host.model import ImportedModel

# Loaded once, so that each child has them.
ENGINES = (litert_engine, onnxruntime_engine, torch_engine)


def read(path: str, shapes: dict[str, list[int]], **others: Any) -> dict[str, Any]:
    """Import a file."""
    return pack(load_forked(Path(path)), Path.cwd())


def load_forked(path: Path) -> ImportedModel:
    """Import a file in this process, but for the original runtime."""
    return load_here(path, {}, 0, 1, None, _forked)


def _forked(
    engine: str,
    path: Path,
    inputs: Sequence[Sequence[np.ndarray]],
    *,
    threads: int = 1,
    unoptimised: bool = False,
) -> list[list[np.ndarray]]:
    """What `run_reference` does, with its words for failures."""
    files = [Path("tmp", name) for name in ("inputs.npz", "outputs.npz", "error.json")]
    for file in files:
        file.unlink(missing_ok=True)
    arrays = {
        f"{case}/{index}": array for case, held in enumerate(inputs) for index, array in enumerate(held)
    }
    types = np.array([str(array.dtype) for array in arrays.values()], dtype=str)
    kept = {name: without_type(array) for name, array in arrays.items()}
    np.savez(files[0], types=types, **kept)
    words = [engine, str(path), str(len(inputs)), str(threads), *map(str, files)]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for said in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), said)
            code = main([*words, *(["unoptimised"] if unoptimised else [])])
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        raise EngineError(f"{path.name}: the engine crashed on it ({signal.Signals(-code).name})")
    if code and files[2].is_file():
        message = str(json.loads(files[2].read_text())["message"]).replace(str(path), "it")
        raise EngineError(f"{path.name}: {' '.join(message.split())}")
    if code:
        raise EngineError(f"{path.name}: the engine ended with code {code}")
    return reference._unpack(files[1], len(inputs))
