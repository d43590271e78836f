"""OpenVINO GenAI's process, in the environment of `scripts/make_environment.py openvino-genai`.

Its own settings, but for the number of threads: prompts are computed with its paged attention, and
activations are rounded where the library does so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.contract.quiet import import_quietly
from device_agent.text_engines.worker import commands_of, serve

openvino = import_quietly("openvino")
openvino_genai = import_quietly("openvino_genai")

MODEL = "openvino_model.xml"
GROUP = 32


class _Clock(openvino_genai.StreamerBase):  # type: ignore[misc, name-defined]
    """When each token came."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def write(self, _token: int | list[int]) -> Any:
        """Called by the library for one token after the other."""
        self.seconds.append(time.perf_counter())
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Called by the library behind the last one."""


class OpenvinoGenai:
    """A folder that `host.compare.text_peers.openvino_file` writes.

    The library keeps nothing of a text from one call to the next: the time of decoding is that between the
    first token and the last of one call.
    """

    def __init__(self) -> None:
        self._pipeline: Any = None
        self._model = Path()
        self._threads = 1

    def version(self) -> str:
        """See `worker.Engine`."""
        return str(openvino_genai.get_version())

    def load(self, path: str, threads: int, context: int) -> None:
        """See `worker.Engine`. Memory for keys and values grows with the text."""
        self._model, self._threads = Path(path) / MODEL, threads
        self._pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)

    def prompt(self, tokens: Sequence[int]) -> tuple[int, float]:
        """See `worker.Engine`."""
        start_s = time.perf_counter()
        (token,), _ = self._continue(tokens, 1)
        return token, time.perf_counter() - start_s

    def decode(self, tokens: Sequence[int], count: int) -> tuple[list[int], float]:
        """See `worker.Engine`."""
        made, seconds = self._continue(tokens, count + 1)
        return made, seconds[-1] - seconds[0]

    def _continue(self, tokens: Sequence[int], count: int) -> tuple[list[int], list[float]]:
        """The tokens that follow, and when each came."""
        settings = openvino_genai.GenerationConfig()
        settings.max_new_tokens = count
        settings.do_sample = False
        # No token ends a text, but the library asks for one.
        settings.ignore_eos = True
        settings.set_eos_token_id(0)
        clock = _Clock()
        given = openvino.Tensor(np.array([tokens], np.int64))
        (made,) = self._pipeline.generate(given, settings, clock).tokens
        if not len(made) == len(clock.seconds) == count:
            raise ValueError(f"{len(made)} tokens at {len(clock.seconds)} times instead of {count}")
        return [int(token) for token in made], clock.seconds

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """See `worker.Engine`. The pipeline gives none: the model without it does."""
        settings = {"INFERENCE_NUM_THREADS": self._threads}
        request = openvino.Core().compile_model(self._model, "CPU", settings).create_infer_request()
        rows = []
        for place, token in enumerate(tokens):
            given = {
                "input_ids": np.array([[token]], np.int64),
                "attention_mask": np.ones((1, place + 1), np.int64),
                "position_ids": np.array([[place]], np.int64),
                "beam_idx": np.zeros(1, np.int32),
            }
            rows.append(np.array(request.infer(given)["logits"], np.float32).reshape(-1))
        return np.stack(rows)


def compress(path: str, compressed: str, bits: int) -> dict[str, Any]:
    """Quantise the weights of a model as the library's own tools do: embedding and head too.

    Args:
        path: of the model.
        compressed: file to write.
        bits: of a weight: 4 in groups that share a scale, or 8 with a scale for each row.
    """
    import nncf

    modes = nncf.CompressWeightsMode
    of_groups = {"mode": modes.INT4_SYM, "group_size": GROUP, "ratio": 1.0, "all_layers": True}
    options = of_groups if bits == 4 else {"mode": modes.INT8_SYM}
    model = nncf.compress_weights(openvino.Core().read_model(path), **options)
    openvino.save_model(model, compressed, compress_to_fp16=False)
    return {}


if __name__ == "__main__":
    serve({**commands_of(OpenvinoGenai()), "compress": compress})
