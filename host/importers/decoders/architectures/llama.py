"""LLaMA 1 to 3, SmolLM, TinyLlama and others of the same form."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from host.importers.decoders.config import Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.family import Names, description, own_rotary, read_sizes, weights
from host.importers.decoders.gguf.form import GgufForm

MODEL_TYPES = ("llama",)


def _gguf_fields(metadata: Config, names: Collection[str]) -> dict[str, Any]:
    # Mixtral is of this architecture too, with experts.
    metadata.only("llama.expert_count", 0)
    return {"attention_bias": "blk.0.attn_q.bias" in names}


GGUF = GgufForm("llama", interleaved=True, keys=("expert_count",), fields=_gguf_fields)


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    config.only("rope_interleaved", False)
    sizes = read_sizes(config, equal_heads=True)
    rotary, positions = own_rotary(config, sizes)
    bias = config.truth("attention_bias", False)
    own = Names(query_bias=bias, output_bias=bias, feed_bias=config.truth("mlp_bias", False))
    model = description(config, sizes, rotary, (0,) * sizes.layers, positions=positions)
    return model, weights(config, sizes, own)
