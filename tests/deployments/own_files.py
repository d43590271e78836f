"""Model files that a test has made itself are read in its own process.

The product reads files of unknown origin in a worker, which loads the compiler anew, and runs archives of
PyTorch in a process that loads PyTorch: seconds for each deployment. What these protect from is for the tests
of hostile files, of workers and references, and of commands in processes of their own, which have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.errors import AgentError
from device_agent.execute import engines
from device_agent.execute.engines.arrays import from_array, to_array
from host.engines import run_reference
from host.importers import load_here
from host.model import ImportedModel
from host.model_file import detect_format


def load_own(path: Path, *given: Any, **named: Any) -> ImportedModel:
    """As `host.importers.load_here`, with PyTorch in this process."""
    if "reference" not in named and path.is_file() and detect_format(path) == "pt2":
        named["reference"] = _torch_here
    return load_here(path, *given, **named)


def read_here(patch: pytest.MonkeyPatch) -> None:
    """Have deployments and compilations read model files in this process, until the patch is undone."""
    import host.importers.worker.parent

    patch.setattr(host.importers, "load", _load)
    patch.setattr(host.importers.worker.parent, "load", _load)
    patch.setattr(host.importers, "start_ahead", lambda *given: nullcontext())


def _load(
    path: Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    golden_cases: int = 3,
    samples: Sequence[Sequence[np.ndarray]] | None = None,
    *,
    half: str = "",
    **_of_a_worker: object,
) -> ImportedModel:
    """As `host.importers.worker.child.read` does it."""
    model = load_own(path, shapes, seed, golden_cases, samples)
    if not half:
        return model
    from host.importers.half_spread import with_half_spread

    return replace(model, golden=with_half_spread(model, half))


def _torch_here(engine: str, path: Path, inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """What `host.engines.run_reference` gives, as `device_agent.execute.engines.__main__` does it."""
    runtime = engines.create(engine)
    found = []
    try:
        runtime.load(str(path), 1)
        for case in inputs:
            runtime.bind([from_array(array) for array in case])
            runtime.invoke()
            found.append([np.array(to_array(value)) for value in runtime.outputs()])
    except AgentError:
        # The process of its own gives the message.
        return run_reference(engine, path, inputs)
    return found
