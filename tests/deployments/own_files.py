"""Model files and bundles that a test has made itself are read in its own process.

The product reads files of unknown origin in a worker, which loads the compiler anew: seconds for each
deployment, and for each kernel that is explained. What it protects from is for the tests of hostile files, of
workers, and of commands in processes of their own, which have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from host.importers import load_here
from host.model import ImportedModel
from tests.deployments.workers import answer_here


def read_here(patch: pytest.MonkeyPatch) -> None:
    """Have model files and the tasks of bundles read in this process, until the patch is undone."""
    import host.importers.worker.parent
    from host.compile.stored_tasks import file as stored_tasks

    patch.setattr(host.importers, "load", _load)
    patch.setattr(host.importers.worker.parent, "load", _load)
    patch.setattr(host.importers, "start_ahead", lambda *given: nullcontext())
    answer_here(patch, stored_tasks)


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
    model = load_here(path, shapes, seed, golden_cases, samples)
    if not half:
        return model
    from host.importers.half_spread import with_half_spread

    return replace(model, golden=with_half_spread(model, half))
