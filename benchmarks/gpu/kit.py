"""What is made beforehand for a machine with a GPU: one folder, read with Python's library and NumPy alone.

plan.json     what there is, and how it was made
cubins.zip    kernels, by the names that the plan gives
executor      the native executor
MODEL.tar.xz  a bundle
MODEL.onnx.xz the same model in halves, for peers
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

PLAN, CUBINS, EXECUTOR = "plan.json", "cubins.zip", "executor"
MODEL_SUFFIX, ONNX_SUFFIX = ".tar.xz", ".onnx.xz"


@dataclass(frozen=True)
class Kit:
    """A folder with everything that is measured.

    Attributes:
        folder: as it was carried here.
    """

    folder: Path

    @cached_property
    def plan(self) -> Mapping[str, Any]:
        """The content of the plan."""
        return dict(json.loads((self.folder / PLAN).read_text()))

    @property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """Tasks by name: `arguments`, `sizes` (None for what no library is compared with), `programs`."""
        return dict(self.plan["tasks"])

    @property
    def models(self) -> Sequence[str]:
        """Names of the bundles."""
        return list(self.plan["models"])

    @property
    def capability(self) -> str | None:
        """The compute capability that kernels are for, such as "9.0"; None of older kits."""
        return self.plan.get("capability")

    def cubin(self, name: str) -> bytes:
        """The content of one cubin."""
        return self._archive.read(name)

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self.folder / CUBINS)


def drawn(task: Mapping[str, Any], seed: int = 0) -> list[np.ndarray]:
    """Arguments of a task: normal numbers, positions for integers; the result, last, is NaN or 0."""
    generator = np.random.default_rng(seed)
    *given, (shape, kind) = task["arguments"]
    made: list[np.ndarray] = []
    for extents, dtype in given:
        if np.issubdtype(np.dtype(dtype), np.floating):
            made.append(generator.standard_normal(extents, dtype=np.float32).astype(dtype))
        else:
            made.append(generator.integers(0, 2, extents).astype(dtype))
    floating = np.issubdtype(np.dtype(kind), np.floating)
    return [
        *made,
        np.full(shape, np.nan if floating else -1, kind) if kind != "bool" else np.zeros(shape, kind),
    ]
