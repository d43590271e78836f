"""llama.cpp's process, in the environment that `scripts/make_environment.py llama-cpp` makes.

Its own settings are those that the library gives, but for the number of threads and the length of the
context: the keys and values are halves, and a prompt is computed 512 tokens at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from device_agent.text_engines.gguf_file import original_of, write_gguf
from device_agent.text_engines.worker import CachingEngine, commands_of, serve


class LlamaCpp(CachingEngine):
    """A GGUF file, through the functions of the C library.

    Args:
        with_flash_attention: whether the library may take it, as it does where nobody says otherwise.
    """

    def __init__(self, with_flash_attention: bool = True) -> None:
        super().__init__()
        self._with_flash_attention = with_flash_attention
        llama_cpp.llama_backend_init()
        self._model: Any = None
        self._context: Any = None
        self._vocabulary = 0

    def version(self) -> str:
        """See `worker.Engine`."""
        return f"{llama_cpp.__version__}; {llama_cpp.llama_print_system_info().decode().strip()}"

    def load(self, path: str, threads: int, context: int) -> None:
        """See `worker.Engine`."""
        settings = llama_cpp.llama_model_default_params()
        settings.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), settings)
        if not self._model:
            raise ValueError(f"llama.cpp does not load {Path(path).name}")
        of_context = llama_cpp.llama_context_default_params()
        of_context.n_ctx = context
        of_context.n_threads = of_context.n_threads_batch = threads
        if not self._with_flash_attention:
            of_context.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = llama_cpp.llama_init_from_model(self._model, of_context)
        if not self._context:
            raise ValueError(f"llama.cpp makes no context of {context} tokens")
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def forget(self, count: int) -> None:
        """See `worker.CachingEngine`."""
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self._context), 0, count, -1)

    def compute(self, tokens: Sequence[int]) -> None:
        """See `worker.CachingEngine`."""
        most = llama_cpp.llama_n_batch(self._context)
        for begin in range(0, len(tokens), most):
            part = list(tokens[begin : begin + most])
            array = (llama_cpp.llama_token * len(part))(*part)
            code = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(array, len(part)))
            if code:
                raise ValueError(f"llama_decode ends with {code}")

    def last(self) -> np.ndarray:
        """See `worker.CachingEngine`; in memory of the library."""
        place = llama_cpp.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(place, shape=(self._vocabulary,))


def _write(folder: str, path: str, bits: int) -> dict[str, Any]:
    write_gguf(Path(folder), Path(path), bits)
    return {"bytes": Path(path).stat().st_size}


def _original(path: str, model: str, folder: str) -> dict[str, Any]:
    original_of(Path(path), Path(model), Path(folder))
    return {}


if __name__ == "__main__":
    serve(
        {
            **commands_of(LlamaCpp("--no-flash-attention" not in sys.argv)),
            "write": _write,
            "original": _original,
        }
    )
