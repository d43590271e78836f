"""Our engine's process: a bundle, through what an application on a board imports."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from benchmarks.llm.worker import commands_of, serve
from device_agent.execute.generation import Timing
from device_agent.runtime import Model, load


class Edgetlm:
    """A language model that EdgeTLM compiled, in a bundle."""

    def __init__(self) -> None:
        self._loaded: Model | None = None

    def version(self) -> str:
        """See `benchmarks.llm.worker.Engine`."""
        return version("edgetlm")

    def load(self, path: str, threads: int, context: int) -> None:
        """See `benchmarks.llm.worker.Engine`. The bundle has the context that it was deployed with."""
        self._loaded = load(path, threads, trust="unsigned")

    @property
    def _model(self) -> Model:
        assert self._loaded is not None
        return self._loaded

    @property
    def _timing(self) -> Timing:
        timing = self._model.timing
        assert timing is not None
        return timing

    def prompt(self, tokens: Sequence[int]) -> tuple[int, float]:
        """See `benchmarks.llm.worker.Engine`."""
        (token,) = self._model.generate(tokens, 1)
        if self._timing.reused_tokens:
            raise ValueError(f"{self._timing.reused_tokens} tokens of the prompt were there before")
        return int(token), self._timing.prefill_s

    def decode(self, tokens: Sequence[int], count: int) -> tuple[list[int], float]:
        """See `benchmarks.llm.worker.Engine`."""
        made = [int(token) for token in self._model.generate(tokens, count + 1)]
        if len(made) != count + 1:
            raise ValueError(f"{len(made)} tokens instead of {count + 1}: {self._model.stopped}")
        return made, self._timing.decode_s

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """See `benchmarks.llm.worker.Engine`. A step for each token, as for text that is generated."""
        rows = []
        for position, token in enumerate(tokens):
            step = [np.array([token], np.int32), np.array([position], np.int32)]
            (row,) = self._model.run(step).values()
            rows.append(np.array(row, np.float32).reshape(-1))
        return np.stack(rows)


if __name__ == "__main__":
    serve(commands_of(Edgetlm()))
