"""Tiny models of every architecture, on the virtual machine and in transformers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from host.importers.decoders.architectures import describe
from host.importers.decoders.constants import Constants
from host.importers.decoders.folder import read_folder
from host.importers.decoders.module import build_prefill, build_step, build_together, state_specs
from host.importers.decoders.quantise import QuantisedPart, dequantise, in_order
from host.importers.decoders.reference.child import logits_of
from host.importers.decoders.reference.model import parameter_named
from host.importers.decoders.reference.roundings import Roundings

CONTEXT, CHUNK, TOKENS, TEXTS = 48, 8, 44, 3
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5],
    "long_factor": [2.0] * 6,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied-biased": ("llama", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "llama-head-size": ("llama", {"head_dim": 8, "num_key_value_heads": 1}),
    "llama-linear": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 50.0, "factor": 2.0}},
    ),
    "llama-3": ("llama", {"rope_parameters": LLAMA3}),
    "llama-yarn": ("llama", {"rope_parameters": YARN}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("qwen2", {"use_sliding_window": True, "sliding_window": 10, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "mistral": ("mistral", {"sliding_window": 12}),
    "phi3": ("phi3", {"pad_token_id": 0, "sliding_window": 20}),
    "phi3-long": (
        "phi3",
        {
            "pad_token_id": 0,
            "max_position_embeddings": 96,
            "original_max_position_embeddings": 48,
            "partial_rotary_factor": 0.75,
            "rope_parameters": LONG,
        },
    ),
    "smollm3": ("smollm3", {"num_hidden_layers": 5, "pad_token_id": 0}),
    "smollm3-window": (
        "smollm3",
        {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 9, "pad_token_id": 0},
    ),
    "gemma": ("gemma", {"head_dim": 16}),
    "gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 9, "attn_logit_softcapping": 0.5}),
    "gemma2-uncapped": ("gemma2", {"head_dim": 16, "sliding_window": 9, "attn_logit_softcapping": None}),
    "gemma3": ("gemma3_text", {"head_dim": 16, "sliding_window": 9, "sliding_window_pattern": 2}),
    "gpt2": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "gpt2-by-layer": (
        "gpt2",
        {
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "n_inner": 80,
            "scale_attn_by_inverse_layer_idx": True,
            "activation_function": "gelu",
        },
    ),
}


def place(model: Any, quantised: Iterable[QuantisedPart]) -> None:
    """Set a whole model's matrices to the values that the quantised ones represent."""
    import torch

    parameters = dict(model.named_parameters(remove_duplicate=False))
    with torch.inference_mode():
        for part in quantised:
            values = torch.from_numpy(in_order(dequantise(part.values), part.order))
            values = values.T if part.matrix.transposed else values
            parameters[parameter_named(parameters, part.matrix.name)].copy_(values)


def place_and_run(model: Any, tokens: Sequence[int], quantised: Iterable[QuantisedPart]) -> np.ndarray:
    """The logits after each token, by a model in this process; see `place` and `logits_of`."""
    place(model, quantised)
    return logits_of(model, tokens)


class Decoder:
    """A model on the virtual machine, and the logits of transformers for one text."""

    def __init__(
        self,
        folder: Path,
        model: Any,
        bits: int = 0,
        group: int = 32,
        roundings: Roundings | None = None,
        chunk: int = CHUNK,
    ) -> None:
        read = read_folder(folder)
        description, weights = describe(read.config, read.weights)
        weights = read.with_own_head(weights)
        read.check(weights.tensors())
        constants = Constants(read, bits, CONTEXT, group)
        self.description = description
        self.specs = state_specs(description, CONTEXT, constants.kept)
        self.step = build_step(description, weights, constants, CONTEXT)
        self.prefill = build_prefill(description, weights, constants, CONTEXT, chunk, roundings)
        self.together = build_together(description, weights, constants, CONTEXT, TEXTS)
        self.tokens = np.random.default_rng(1).integers(0, description.vocabulary, TOKENS)
        parts = list(constants.quantised_parts(weights))
        self.quantised = {part.matrix.name for part in parts}
        self.blocks = {part.matrix.columns: part.values.form.block for part in parts}
        self.logits = place_and_run(model, self.tokens.tolist(), parts)


def distance(made: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(made - wanted).max() / np.abs(wanted).max())
