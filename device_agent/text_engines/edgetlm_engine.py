"""Our engine's process: a bundle, through what an application on a board imports."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from device_agent.execute.generation import Timing
from device_agent.runtime import Model, load
from device_agent.text_engines.worker import Command, commands_of, serve


class Edgetlm:
    """A language model that EdgeTLM compiled, in a bundle."""

    def __init__(self) -> None:
        self._loaded: Model | None = None

    def version(self) -> str:
        """See `worker.Engine`."""
        return version("edgetlm")

    def load(self, path: str, threads: int, context: int) -> None:
        """See `worker.Engine`. The bundle has the context that it was deployed with."""
        self._loaded = load(path, threads, trust="unsigned")
        if self._loaded._generation is not None:
            # Random texts are as long as was asked for, as those of the peers.
            self._loaded._generation.decoder.end_tokens = frozenset()

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
        """See `worker.Engine`."""
        (token,) = self._model.generate(tokens, 1)
        if self._timing.reused_tokens:
            raise ValueError(f"{self._timing.reused_tokens} tokens of the prompt were there before")
        return int(token), self._timing.prefill_s

    def decode(self, tokens: Sequence[int], count: int) -> tuple[list[int], float]:
        """See `worker.Engine`. By steps alone: peers draft nothing.

        Greedy text of random weights repeats itself, so that most drafts would be right.
        """
        made = [int(token) for token in self._model.generate(tokens, count + 1, speculate=False)]
        if self._timing.speculated_tokens:
            raise ValueError(f"{self._timing.speculated_tokens} tokens were drafted")
        if len(made) != count + 1:
            raise ValueError(f"{len(made)} tokens instead of {count + 1}: {self._model.stopped}")
        return made, self._timing.decode_s

    def decode_many(self, texts: Sequence[Sequence[int]], count: int) -> tuple[list[list[int]], float]:
        """The likeliest `count` + 1 tokens of several texts together; the seconds of all but the first."""
        made: list[list[int]] = [[] for _ in texts]
        pieces = self._model.generate_many(texts, count + 1)
        for text, piece in pieces:
            made[text].append(int(piece))
        if any(len(one) != count + 1 for one in made):
            raise ValueError(f"texts end early: {pieces.stopped}")
        return made, pieces.timing.decode_s

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """See `worker.Engine`. A step for each token, as for text that is generated."""
        rows = []
        for position, token in enumerate(tokens):
            step = [np.array([token], np.int32), np.array([position], np.int32)]
            (row,) = self._model.run(step).values()
            rows.append(np.array(row, np.float32).reshape(-1))
        return np.stack(rows)


def commands() -> dict[str, Command]:
    """The commands of every engine, and the one for several texts."""
    engine = Edgetlm()

    def decode_many(texts: list[list[int]], count: int) -> dict[str, Any]:
        made, seconds = engine.decode_many(texts, count)
        return {"tokens": made, "seconds": seconds}

    return {**commands_of(engine), "decode_many": decode_many}


if __name__ == "__main__":
    serve(commands())
