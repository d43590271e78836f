"""Tiny decoders with random weights, as transformers writes them, and their logits by transformers."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
}


def save(folder: Path, kind: str, **fields: Any) -> Any:
    """A model of an architecture, written to a folder; transformers' own object of it."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(kind, **{**SIZES, "initializer_range": 0.3, **fields})
    torch.manual_seed(0)
    with contextlib.redirect_stderr(io.StringIO()):  # a bar of progress
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim == 1:  # norms and biases begin as ones and zeros, which would hide mistakes
                    parameter.copy_(torch.randn_like(parameter) * 0.1 + float("norm" in name))
        model.eval().float().save_pretrained(folder, safe_serialization=True)
    return model


def write(folder: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray] | None) -> Path:
    """A folder out of fields and arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if weights is not None:
        safetensors.numpy.save_file(dict(weights), folder / "model.safetensors")
    return folder


def llama(**fields: Any) -> dict[str, Any]:
    """The fields of a LLaMA of two layers."""
    return {"model_type": "llama", **SIZES, **fields}


def llama_weights() -> dict[str, np.ndarray]:
    """The weights that `llama()` has."""
    from host.importers.decoders.architectures import describe
    from host.importers.decoders.config import Config

    generator = np.random.default_rng(0)
    _, places = describe(Config("test", llama()), ())
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in places.tensors()}


# Beside the fields of `llama()`, of a folder with a head of its own.
OWN_HEAD = {"eos_token_id": [2, 3, 999], "tie_word_embeddings": False}


def trained_folder(path: Path) -> Path:
    """A folder with weights as of a trained model: no more than unit variance from product to product."""
    from tests.tiny_tokenizer import write_tokenizer

    weights = {name: value / (10 if value.ndim == 2 else 1) for name, value in llama_weights().items()}
    write(path, llama(architectures=["LlamaForCausalLM"], **OWN_HEAD), weights)
    write_tokenizer(path / "tokenizer.json")
    return path
