"""The models: shapes of Llama and Qwen3 with seeded random weights, written as transformers folders.

python -m benchmarks.llm.models NAME FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.result_file import ROOT

GROUP = 32
"""Weights that share a scale of two bytes, in our bundles as in Q4_0 and Q8_0."""

FLOAT_BITS = 32
"""Bits of a weight that is not quantised."""

_SEED = 0
_POSITIONS = 4096


@dataclass(frozen=True)
class Shape:
    """Sizes of a model.

    Attributes:
        kind: "llama" or "qwen3", which has norms of queries and keys.
        layers: of the model.
        hidden: elements of a row between layers.
        heads, key_heads: of queries, and of keys and values.
        head_size: elements of a head.
        intermediate: elements between the products of the feed-forward part.
        vocabulary: tokens that there are.
        tied: whether the head's weight is the embedding's.
    """

    kind: str
    layers: int
    hidden: int
    heads: int
    key_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    tied: bool

    def step_elements(self) -> int:
        """Elements of the matrices that a step multiplies with: all but an embedding that is no head."""
        attention = 2 * (self.heads + self.key_heads) * self.head_size * self.hidden
        layer = attention + 3 * self.hidden * self.intermediate
        return self.layers * layer + self.vocabulary * self.hidden

    def prompt_multiply_adds(self, tokens: int) -> int:
        """Multiply-adds with weights that a prompt needs, until the next token is known.

        Of the last layer all but keys and values is needed for the last token alone, and so is the head.
        Those of attention with keys and values are not counted.

        Args:
            tokens: of the prompt.
        """
        last = self.step_elements() - self._rows_elements()
        return tokens * self._rows_elements() + last

    def _rows_elements(self) -> int:
        """Elements of the matrices that every token of a prompt meets."""
        keys = 2 * self.key_heads * self.head_size * self.hidden
        layer = (self.step_elements() - self.vocabulary * self.hidden) // self.layers
        return (self.layers - 1) * layer + keys

    def step_bytes(self, bits: int) -> int:
        """Bytes of weights that computing one token reads: matrices, norms, a row embedded.

        Args:
            bits: of an element of a matrix; with 4 and 8, each group has a scale beside them.
        """
        norms = (2 * self.layers + 1) * self.hidden
        if self.kind == "qwen3":
            norms += 2 * self.layers * self.head_size
        elements = self.step_elements() + self.hidden
        scales = 0 if bits == FLOAT_BITS else 2 * elements // GROUP
        return elements * bits // 8 + scales + 4 * norms

    def kept_bytes(self, tokens: int, bits: int) -> int:
        """Bytes of keys and values that a step behind so many tokens reads.

        Args:
            tokens: that precede.
            bits: of a weight; beside 4 and 8, keys and values are in half precision, else in single.
        """
        element_bytes = 4 if bits == FLOAT_BITS else 2
        return 2 * element_bytes * self.layers * self.key_heads * self.head_size * tokens


SHAPES = {
    "0.1b": Shape("llama", 12, 768, 12, 12, 64, 2048, 32000, tied=True),
    # Qwen3-0.6B.
    "0.5b": Shape("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, tied=True),
    # TinyLlama.
    "1.1b": Shape("llama", 22, 2048, 32, 4, 64, 5632, 32000, tied=False),
}


def folder_of(name: str, models: Path) -> Path:
    """The folder of a model, made by a process of its own if it is not there.

    Raises:
        subprocess.CalledProcessError: it could not be made.
    """
    folder = models / name
    if not (folder / "config.json").is_file():
        command = [sys.executable, "-m", "benchmarks.llm.models", name, str(folder.absolute())]
        subprocess.run(command, cwd=ROOT, check=True)
    return folder


def make(shape: Shape, folder: Path) -> None:
    """Write a model with random weights, and without tokens that would end a text."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    kinds: dict[str, tuple[Any, Any]] = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    }
    config, model = kinds[shape.kind]
    torch.manual_seed(_SEED)
    made = model(
        config(
            num_hidden_layers=shape.layers,
            hidden_size=shape.hidden,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.key_heads,
            head_dim=shape.head_size,
            intermediate_size=shape.intermediate,
            vocab_size=shape.vocabulary,
            max_position_embeddings=_POSITIONS,
            tie_word_embeddings=shape.tied,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    partial = folder.with_name(f"partial-{folder.name}")
    made.save_pretrained(partial, safe_serialization=True, max_shard_size="100GB")
    partial.replace(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    name, folder = sys.argv[1:] if arguments is None else arguments
    make(SHAPES[name], Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
