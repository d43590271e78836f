"""A process of an engine whose next token is one more than the last one, and that writes files of a line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from device_agent.text_engines.worker import CachingEngine, commands_of, serve

VOCABULARY = 50


class Stub(CachingEngine):
    """Args: what its logits are off by, and what goes wrong: "refuses" to load, or "wide" logits."""

    def __init__(self, off: float, wrong: str) -> None:
        super().__init__()
        self._off, self._refuses, self._last = off, wrong == "refuses", 0
        self._size = VOCABULARY + (wrong == "wide")

    def version(self) -> str:
        return "stub 1"

    def load(self, path: str, threads: int, context: int) -> None:
        if self._refuses or not Path(path).exists():
            raise ValueError("no such model")

    def forget(self, count: int) -> None:
        pass

    def compute(self, tokens: Sequence[int]) -> None:
        self._last = tokens[-1]

    def last(self) -> np.ndarray:
        logits = np.zeros(self._size, np.float32)
        logits[(self._last + 1) % VOCABULARY] = 5.0
        logits[0] += self._off
        return logits


def write(folder: str, path: str, bits: int) -> dict[str, int]:
    Path(path).write_text(f"{Path(folder).name} {bits}")
    return {}


if __name__ == "__main__":
    off, wrong = float(sys.argv[1]), "".join(sys.argv[2:])
    serve({**commands_of(Stub(off, wrong)), "write": write})
