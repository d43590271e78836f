"""ONNX Runtime GenAI's process, in the environment of `scripts/make_environment.py onnxruntime-genai`.

Its own settings are those that its model builder writes, but for the number of threads and the length of the
context.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime_genai

from device_agent.text_engines.worker import CachingEngine, commands_of, serve


class OnnxruntimeGenai(CachingEngine):
    """A folder of the model builder's.

    Tokens are chosen by the benchmark: the generator's own choice ends a text at a token of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generator: Any = None

    def version(self) -> str:
        """See `worker.Engine`."""
        return str(onnxruntime_genai.__version__)

    def load(self, path: str, threads: int, context: int) -> None:
        """See `worker.Engine`."""
        settings = onnxruntime_genai.Config(path)
        options = {"session_options": {"intra_op_num_threads": threads}}
        settings.overlay(json.dumps({"model": {"decoder": options}}))
        model = onnxruntime_genai.Model(settings)
        parameters = onnxruntime_genai.GeneratorParams(model)
        parameters.set_search_options(max_length=context, do_sample=False)
        self._generator = onnxruntime_genai.Generator(model, parameters)

    def forget(self, count: int) -> None:
        """See `worker.CachingEngine`."""
        if self.length > count:
            self._generator.rewind_to(count)

    def compute(self, tokens: Sequence[int]) -> None:
        """See `worker.CachingEngine`."""
        self._generator.append_tokens(np.array(tokens, np.int32))

    def last(self) -> np.ndarray:
        """See `worker.CachingEngine`."""
        logits = np.asarray(self._generator.get_logits(), np.float32)
        last: np.ndarray = logits.reshape(-1, logits.shape[-1])[-1]
        return last


if __name__ == "__main__":
    serve(commands_of(OnnxruntimeGenai()))
