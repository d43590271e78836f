"""Sums over samples that the errors of outputs are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from host.model.quantisation import OutputError


class ErrorSums:
    """Collects how far an output is from its reference.

    Args:
        name: of the output.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._noise = self._signal = self._other = self._product = 0.0
        self._largest = self._scale = 0.0
        self._rows = self._same = self._elements = self._differing = 0
        self._classes = True
        self._real = True

    def add(self, reference: np.ndarray, value: np.ndarray) -> None:
        """Count a sample; what is not finite on one side alone is infinitely far."""
        self._elements += reference.size
        self._real = reference.dtype.kind == "f"
        if not self._real:
            self._differing += int((reference != value).sum())
            self._classes = False
            return
        f, q = reference.astype(np.float64), value.astype(np.float64)
        if not np.array_equal(np.isfinite(f), np.isfinite(q)):
            self._noise = math.inf
        usable = np.isfinite(f) & np.isfinite(q)
        a, b = f[usable], q[usable]
        self._noise += float(((b - a) ** 2).sum())
        self._signal += float((a * a).sum())
        self._other += float((b * b).sum())
        self._product += float((a * b).sum())
        self._largest = max(self._largest, float(np.abs(b - a).max(initial=0.0)))
        self._scale = max(self._scale, float(np.abs(a).max(initial=0.0)))
        self._classes &= reference.ndim == 2 and reference.shape[1] >= 2
        if self._classes:
            self._rows += len(reference)
            self._same += int((f.argmax(axis=1) == q.argmax(axis=1)).sum())

    def result(self) -> OutputError:
        """The errors over all samples; where the reference is 0, as against 1."""
        if not self._real:
            share = self._differing / max(self._elements, 1)
            return OutputError(self._name, share, float(self._differing > 0))
        lengths = math.sqrt(self._signal * self._other)
        return OutputError(
            self._name,
            math.sqrt(self._noise) / (math.sqrt(self._signal) or 1.0),
            self._largest / (self._scale or 1.0),
            self._product / lengths if lengths > 0 else None,
            self._same / self._rows if self._classes and self._rows else None,
        )


def output_errors(
    names: Sequence[str], references: Sequence[Sequence[np.ndarray]], values: Sequence[Sequence[np.ndarray]]
) -> tuple[OutputError, ...]:
    """The errors of each output over samples.

    Args:
        names: of the outputs.
        references: outputs by sample.
        values: the same of the other model.
    """
    sums = [ErrorSums(name) for name in names]
    for expected, found in zip(references, values, strict=True):
        for one, reference, value in zip(sums, expected, found, strict=True):
            one.add(reference, value)
    return tuple(one.result() for one in sums)
