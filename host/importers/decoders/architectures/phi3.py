"""Phi 3, 3.5 and 4: fused matrices, and LongRoPE within the context of the training."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from host.importers.decoders.config import MAX_POSITIONS, Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.family import Names, description, own_rotary, read_sizes, weights, window
from host.importers.decoders.gguf.form import GgufForm

MODEL_TYPES = ("phi3",)
# Of a config that does not name it.
_TRAINED_POSITIONS = 4096


def _gguf_fields(metadata: Config, names: Collection[str]) -> dict[str, Any]:
    own = metadata.whole("phi3.attention.sliding_window", 0, MAX_POSITIONS, 0)
    original = metadata.whole(
        "phi3.rope.scaling.original_context_length", 1, MAX_POSITIONS, _TRAINED_POSITIONS
    )
    # transformers has a padding token of its own, beyond a smaller vocabulary.
    return {"sliding_window": own or None, "original_max_position_embeddings": original, "pad_token_id": None}


GGUF = GgufForm("phi3", fused=True, partial=True, keys=("attention.sliding_window",), fields=_gguf_fields)


def describe(config: Config, names: Collection[str]) -> tuple[DecoderDescription, DecoderWeights]:
    """See `architectures.describe`."""
    if not config.has("original_max_position_embeddings"):
        given = {**config.values, "original_max_position_embeddings": _TRAINED_POSITIONS}
        config = Config(config.where, given)
    sizes = read_sizes(config, equal_heads=True)
    rotary, positions = own_rotary(config, sizes, partial=True)
    own = window(config) if config.has("sliding_window") else 0
    model = description(config, sizes, rotary, (own,) * sizes.layers, positions=positions, epsilon=1e-5)
    return model, weights(config, sizes, Names(fused=True))
