"""ONNX Runtime GenAI's process, in the environment of `scripts/make_environment.py onnxruntime-genai`.

Its own settings are those that its model builder writes, but for the number of threads and the length of the
context.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime_genai

from benchmarks.llm.worker import commands_of, serve


class OnnxruntimeGenai:
    """A folder of the model builder's."""

    def __init__(self) -> None:
        self._generator: Any = None
        # The tokens that its sequence has.
        self._tokens: list[int] = []

    def version(self) -> str:
        """See `benchmarks.llm.worker.Engine`."""
        return str(onnxruntime_genai.__version__)

    def load(self, path: str, threads: int, context: int) -> None:
        """See `benchmarks.llm.worker.Engine`."""
        settings = onnxruntime_genai.Config(path)
        options = {"session_options": {"intra_op_num_threads": threads}}
        settings.overlay(json.dumps({"model": {"decoder": options}}))
        model = onnxruntime_genai.Model(settings)
        parameters = onnxruntime_genai.GeneratorParams(model)
        parameters.set_search_options(max_length=context, do_sample=False)
        self._generator = onnxruntime_genai.Generator(model, parameters)

    def prompt(self, tokens: Sequence[int]) -> tuple[int, float]:
        """See `benchmarks.llm.worker.Engine`."""
        self._keep(0)
        start_s = time.perf_counter()
        self._compute(tokens)
        token = self._likeliest()
        return token, time.perf_counter() - start_s

    def decode(self, tokens: Sequence[int], count: int) -> tuple[list[int], float]:
        """See `benchmarks.llm.worker.Engine`."""
        # The last one is computed again for its logits.
        known = len(tokens) - 1
        self._keep(known if self._tokens[:known] == list(tokens[:known]) else 0)
        self._compute(tokens[len(self._tokens) :])
        made = [self._likeliest()]
        start_s = time.perf_counter()
        for _ in range(count):
            self._compute(made[-1:])
            made.append(self._likeliest())
        return made, time.perf_counter() - start_s

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """See `benchmarks.llm.worker.Engine`."""
        self._keep(0)
        rows = []
        for token in tokens:
            self._compute([token])
            rows.append(self._last().copy())
        return np.stack(rows)

    def _keep(self, count: int) -> None:
        """Forget all tokens but the first so many."""
        if len(self._tokens) > count:
            self._generator.rewind_to(count)
        del self._tokens[count:]

    def _compute(self, tokens: Sequence[int]) -> None:
        self._generator.append_tokens(np.array(tokens, np.int32))
        self._tokens += tokens

    def _last(self) -> np.ndarray:
        """The logits behind the last token."""
        logits = np.asarray(self._generator.get_logits(), np.float32)
        last: np.ndarray = logits.reshape(-1, logits.shape[-1])[-1]
        return last

    def _likeliest(self) -> int:
        # Not the generator's own choice, which ends a text at a token that this benchmark has none of.
        return int(self._last().argmax())


if __name__ == "__main__":
    serve(commands_of(OnnxruntimeGenai()))
