"""Qwen 3: norms of each head of queries and keys."""

from __future__ import annotations

from collections.abc import Collection

from host.importers.decoders.architectures.qwen2 import windows
from host.importers.decoders.config import Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.family import Names, description, own_rotary, read_sizes, weights
from host.importers.decoders.gguf.form import GgufForm

MODEL_TYPES = ("qwen3",)
GGUF = GgufForm("qwen3")


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    sizes = read_sizes(config, head_size=128)
    rotary, positions = own_rotary(config, sizes)
    bias = config.truth("attention_bias", False)
    model = description(config, sizes, rotary, windows(config, sizes.layers), positions=positions)
    return model, weights(config, sizes, Names(query_bias=bias, output_bias=bias, head_norms=True))
