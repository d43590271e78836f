"""Phi 3, 3.5 and 4: fused matrices, and LongRoPE within the context of the training."""

from __future__ import annotations

from collections.abc import Collection

from host.importers.decoders.config import Config
from host.importers.decoders.description import DecoderDescription, DecoderWeights
from host.importers.decoders.family import Names, description, own_rotary, read_sizes, weights, window

MODEL_TYPES = ("phi3",)
# Of a config that does not name it.
_TRAINED_POSITIONS = 4096


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
