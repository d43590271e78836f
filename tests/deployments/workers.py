"""Requests to the workers of the product are answered in the test's own process.

The product reads and exports files of unknown origin in a worker, which loads its libraries anew: PyTorch
with transformers in five seconds, ONNX Runtime with its quantiser in two. Requests, answers and errors take
the same form here. What a worker protects from, and that it answers at all, is for tests that have one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import pytest

from host.sandbox.child import answer
from host.sandbox.worker import unpacked
from tests.deployments.references import quiet


def answer_here(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Have what a module asks of a worker answered in this process, until the patch is undone.

    Args:
        patch: undoes it.
        module: that starts workers, by the name `Worker`.
    """
    patch.setattr(module, "Worker", _WorkerHere)


class _WorkerHere:
    """The scratch folder and the answers of a worker, without its process."""

    missing: tuple[str, ...] = ()

    def __init__(self, *_of_a_process: object) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="edgetlm-here-"))

    def call(
        self, function: str, request: dict[str, Any], meanwhile: Callable[[], object] = lambda: None
    ) -> Any:
        meanwhile()
        silenced = logging.root.manager.disable
        try:
            # The scratch folder is the working folder of a worker.
            with quiet(), contextlib.chdir(self.scratch):
                reply = answer(function, json.loads(json.dumps(request)))
        finally:
            # What a worker silences ends with it.
            logging.disable(silenced)
        return unpacked(json.loads(json.dumps(reply)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.scratch)
