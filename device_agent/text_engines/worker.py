"""The side of an engine's process: commands as lines of JSON on stdin, an answer each on stdout.

Standard library and NumPy only, because it also runs in the environments of other engines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from typing import Any, Callable, Mapping, Protocol, Sequence

import numpy as np


class Engine(Protocol):
    """The interface of an engine in the benchmark."""

    def version(self) -> str:
        """Of the engine, and what it says of the processor."""

    def load(self, path: str, threads: int, context: int) -> None:
        """Load a model.

        Args:
            path: of the model, as this engine reads it.
            threads: to compute with.
            context: tokens that it has to keep.
        """

    def prompt(self, tokens: Sequence[int]) -> tuple[int, float]:
        """The token that follows a prompt of which nothing was computed before, and the seconds."""

    def decode(self, tokens: Sequence[int], count: int) -> tuple[list[int], float]:
        """The likeliest tokens one after the other.

        Args:
            tokens: what they follow; may be there from the last call, and is not timed.
            count: how many are timed.

        Returns:
            `count` + 1 tokens, and the seconds of all but the first.
        """

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """The logits behind each of some tokens, computed one at a time: (n, V) float32."""


class CachingEngine(ABC):
    """An engine that keeps what it has computed of a text, and appends to it."""

    def __init__(self) -> None:
        self._tokens: list[int] = []

    @property
    def length(self) -> int:
        """Tokens that are kept."""
        return len(self._tokens)

    @abstractmethod
    def forget(self, count: int) -> None:
        """Keep the first so many tokens alone."""

    @abstractmethod
    def compute(self, tokens: Sequence[int]) -> None:
        """Append tokens to those that are kept."""

    @abstractmethod
    def last(self) -> np.ndarray:
        """The logits behind the last token: (V) float32, valid until the next call."""

    def prompt(self, tokens: Sequence[int]) -> tuple[int, float]:
        """See `Engine`."""
        self._keep(0)
        start_s = time.perf_counter()
        self._append(tokens)
        token = self._likeliest()
        return token, time.perf_counter() - start_s

    def decode(self, tokens: Sequence[int], count: int) -> tuple[list[int], float]:
        """See `Engine`."""
        # The last one is computed again for its logits.
        known = len(tokens) - 1
        self._keep(known if self._tokens[:known] == list(tokens[:known]) else 0)
        self._append(tokens[self.length :])
        made = [self._likeliest()]
        start_s = time.perf_counter()
        for _ in range(count):
            self._append(made[-1:])
            made.append(self._likeliest())
        return made, time.perf_counter() - start_s

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """See `Engine`."""
        self._keep(0)
        rows = []
        for token in tokens:
            self._append([token])
            rows.append(self.last().copy())
        return np.stack(rows)

    def _keep(self, count: int) -> None:
        self.forget(count)
        del self._tokens[count:]

    def _append(self, tokens: Sequence[int]) -> None:
        self.compute(tokens)
        self._tokens += tokens

    def _likeliest(self) -> int:
        return int(self.last().argmax())


Command = Callable[..., Mapping[str, Any]]


def commands_of(engine: Engine) -> dict[str, Command]:
    """The commands that every engine answers."""

    def load(path: str, threads: int, context: int) -> dict[str, Any]:
        start_s = time.perf_counter()
        engine.load(path, threads, context)
        return {"seconds": time.perf_counter() - start_s}

    def prompt(tokens: list[int]) -> dict[str, Any]:
        token, seconds = engine.prompt(tokens)
        return {"token": token, "seconds": seconds}

    def decode(tokens: list[int], count: int) -> dict[str, Any]:
        made, seconds = engine.decode(tokens, count)
        return {"tokens": made, "seconds": seconds}

    def logits(tokens: list[int], path: str) -> dict[str, Any]:
        np.save(path, engine.logits(tokens))
        return {}

    def version() -> dict[str, Any]:
        return {"version": engine.version()}

    return {"version": version, "load": load, "prompt": prompt, "decode": decode, "logits": logits}


def serve(commands: Mapping[str, Command]) -> None:
    """Answer commands until stdin ends.

    A command is an object with its name, `command`, and its arguments. The answer is what it returns, or
    `error`, one line.
    """
    # What libraries print does not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = dict(commands[request.pop("command")](**request))
        except Exception as error:  # noqa: BLE001  # whatever an engine raises is reported to the parent
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        answers.write(json.dumps(answer) + "\n")
